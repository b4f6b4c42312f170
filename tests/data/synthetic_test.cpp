#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <span>
#include <string>
#include <vector>

#include <lockstep/data/synthetic.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/sha256.h>
#include <lockstep/tests/support/reference.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

std::string sha256_of(const torch::Tensor& bytes) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(bytes.const_data_ptr<uint8_t>(), bytes.nbytes())));
  return hash.hex();
}

// (n, 784), in [0, 1]
torch::Tensor flat(const ImageSet& set) { return set.images.flatten(1).to(torch::kFloat32) / 255; }

}  // namespace

TEST_CASE("synthetic images have the same bytes as Python's") {
  const auto reference = lockstep::testing::reference("synthetic.json");
  CHECK(reference.size() == 6);
  for (const auto& expected : reference) {
    const auto seed = expected.at("seed").get<uint64_t>();
    const auto rows = expected.at("rows").get<int64_t>();
    INFO(expected.at("set") << " rows of seed " << seed);
    const bool train = expected.at("set") == "train";
    const Dataset data = make_synthetic(seed, train ? rows : 1, train ? 1 : rows);
    const ImageSet& set = train ? data.train : data.test;
    CHECK(sha256_of(set.images) == expected.at("images").get<std::string>());
    const auto* labels = set.labels.const_data_ptr<uint8_t>();
    CHECK(std::vector<int>(labels, labels + set.size()) == expected.at("labels").get<std::vector<int>>());
  }
}

TEST_CASE("synthetic data has the shapes of a data set") {
  const Dataset data = make_synthetic(0, 300, 200);
  CHECK(data.name == "synthetic");
  CHECK(data.classes == 10);
  CHECK(data.train.images.sizes() == torch::IntArrayRef({300, 1, 28, 28}));
  CHECK(data.test.images.sizes() == torch::IntArrayRef({200, 1, 28, 28}));
  CHECK(data.train.labels.sizes() == torch::IntArrayRef({300}));
  CHECK(data.train.labels.dtype() == torch::kUInt8);
  const auto count = torch::bincount(data.train.labels.to(torch::kInt64));
  CHECK(count.size(0) == 10);
  CHECK(count.min().item<int64_t>() > 0);
}

TEST_CASE("the first synthetic rows do not depend on how many follow") {
  const Dataset few = make_synthetic(3, 10, 5);
  const Dataset many = make_synthetic(3, 100, 50);
  CHECK(few.train.images.equal(many.train.images.narrow(0, 0, 10)));
  CHECK(few.train.labels.equal(many.train.labels.narrow(0, 0, 10)));
  CHECK(few.test.images.equal(many.test.images.narrow(0, 0, 5)));
}

TEST_CASE("synthetic images of other seeds and of the two sets differ") {
  const Dataset a = make_synthetic(0, 10, 10);
  CHECK_FALSE(a.train.images.equal(a.test.images));
  CHECK_FALSE(a.train.images.equal(make_synthetic(1, 10, 10).train.images));
}

// A simple learner, nearest class mean, finds the classes of new rows better than chance (10 %), but not all
// of them. At least one row in twenty shows more of another class than of its own.
TEST_CASE("synthetic data can be learned, but not perfectly") {
  for (const uint64_t seed : {0, 1, 2}) {
    const Dataset data = make_synthetic(seed, 5000, 2000);
    const auto labels = data.train.labels.to(torch::kInt64);
    const auto sums = torch::zeros({10, 784}).index_add_(0, labels, flat(data.train));
    const auto means = sums / torch::bincount(labels, {}, 10).unsqueeze(1);
    const auto found = torch::cdist(flat(data.test), means).argmin(1);
    const double accuracy = found.eq(data.test.labels).to(torch::kFloat64).mean().item<double>();
    INFO("seed " << seed);
    CHECK(accuracy > .5);
    CHECK(accuracy < .95);
  }
}

TEST_CASE("synthetic images have any shape and number of classes") {
  for (const ImageShape shape : {ImageShape{3, 32, 32}, ImageShape{1, 8, 8}, ImageShape{4, 1, 5},
                                 ImageShape{2, 1, 1}, ImageShape{3, 17, 64}}) {
    INFO(to_string(shape));
    const Dataset data = make_synthetic(1, 400, 5, shape, 12);
    CHECK((data.train.shape() == shape));
    CHECK((data.test.shape() == shape));
    CHECK(data.classes == 12);
    CHECK(data.class_names.size() == 12);
    CHECK(data.train.labels.max().item<int64_t>() == 11);
    CHECK(data.train.images[0].equal(make_synthetic(1, 1, 1, shape, 12).train.images[0]));
  }
  const auto colour = make_synthetic(1, 10, 1, {3, 28, 28}).train.images;
  CHECK_FALSE(colour.select(1, 0).equal(colour.select(1, 1)));
  CHECK(make_synthetic(1, 10, 1, {1, 28, 28}, 10).train.images.equal(make_synthetic(1, 10, 1).train.images));
}

TEST_CASE("synthetic images that cannot be made are refused") {
  struct Case {
    ImageShape shape;
    int64_t classes;
    const char* words;
  };
  for (const auto& [shape, classes, words] : std::vector<Case>{{{0, 28, 28}, 10, "0 channels"},
                                                               {{5, 28, 28}, 10, "5 channels"},
                                                               {{1, 0, 28}, 10, "0 pixels in height"},
                                                               {{1, 28, 2000}, 10, "2000 pixels in width"},
                                                               {{1, 28, 28}, 0, "0 classes"},
                                                               {{1, 28, 28}, 257, "257 classes"}}) {
    INFO(words);
    CHECK_THROWS_WITH(make_synthetic(0, 1, 1, shape, classes), ContainsSubstring(words));
  }
}

TEST_CASE("synthetic data of no rows is refused") {
  CHECK_THROWS_AS(make_synthetic(0, 0, 10), UsageError);
  CHECK_THROWS_WITH(make_synthetic(0, 10, -3), ContainsSubstring("-3") && ContainsSubstring("test"));
}
