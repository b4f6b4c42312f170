// Rows that are held out for validation.
#include <lockstep/tests/catch.h>

#include <torch/types.h>

#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/held_out.h>
#include <lockstep/data/known_data.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

std::vector<int64_t> held_out(uint64_t seed, int64_t rows, double share) {
  std::vector<int64_t> numbers;
  for (int64_t row = 0; row < rows; ++row) {
    if (is_held_out(seed, row, share)) numbers.push_back(row);
  }
  return numbers;
}

// Row i has the label i % 10, and i in its first pixel.
TrainingData with_numbers(int64_t rows) {
  auto images = torch::zeros({rows, 1, 28, 28}, torch::kUInt8);
  images.select(1, 0).select(1, 0).select(1, 0).copy_(torch::arange(rows));
  const ImageSet set{.images = images, .labels = torch::arange(rows).remainder(10).to(torch::kUInt8)};
  return as_training_data(Dataset{.name = "mine", .train = set, .test = set});
}

std::vector<int64_t> first_pixels(const DataRows& rows) {
  const auto source = rows.sources(torch::kCPU);
  Batch into(std::make_shared<const BatchSpec>(source->spec()));
  source->gather(torch::arange(rows.rows), 0, into);
  std::vector<int64_t> pixels;
  for (int64_t row = 0; row < rows.rows; ++row) {
    pixels.push_back(std::lround(into[0][row].flatten()[0].item<double>()));
  }
  return pixels;
}

// Notes what it is told.
class Listener : public BatchSource {
 public:
  explicit Listener(std::shared_ptr<std::vector<int64_t>> told) : told_(std::move(told)) {}

  int64_t size() const override { return 40; }
  BatchSpec spec() const override { return {}; }
  void gather(const torch::Tensor&, int64_t, Batch&) const override {}
  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    told_->insert(told_->end(), rows.begin(), rows.end());
    told_->push_back(epoch);
  }

 private:
  const std::shared_ptr<std::vector<int64_t>> told_;
};

}  // namespace

TEST_CASE("rows that are held out are read through sources of their own, where there are some") {
  auto data = with_numbers(40), plain = with_numbers(40);
  std::vector<int64_t> backwards;
  for (int64_t row = 39; row >= 0; --row) backwards.push_back(row);
  data.train.held_out = subset_of(data.train, backwards).sources;
  hold_out(data, .5, /*seed=*/3);
  hold_out(plain, .5, /*seed=*/3);
  CHECK(first_pixels(data.train) == first_pixels(plain.train));
  auto pixels = first_pixels(*data.validation);
  for (auto& pixel : pixels) pixel = 39 - pixel;
  CHECK(pixels == first_pixels(*plain.validation));
}

TEST_CASE("sources of some rows tell those of all rows by their own numbers, and no row that they lack") {
  const auto told = std::make_shared<std::vector<int64_t>>();
  const DataRows all{.rows = 40,
                     .sources = [told](torch::Device) { return std::make_shared<Listener>(told); }};
  const auto some = subset_of(all, {5, 17, 30}).sources(torch::kCPU);
  some->will_need(std::vector<int64_t>{2, 0, 3, -1}, /*epoch=*/6);
  CHECK(*told == std::vector<int64_t>{30, 5, 6});
}

TEST_CASE("sources of resident rows share their copy on a device, which lasts as long as one of them") {
  const auto data = with_numbers(40);
  const auto rows = data.train.sources(torch::kCPU);
  CHECK(data.train.sources(torch::kCPU) == rows);
  CHECK(rows.use_count() == 1);  // a factory alone holds none
}

TEST_CASE("rows are held out by the formula that the header has in Python") {
  CHECK(held_out(0, 40, .2) == std::vector<int64_t>{0, 4, 15, 29, 32});
  CHECK(held_out(7, 40, .2) == std::vector<int64_t>{0, 8, 11, 21, 22, 23, 24, 27, 29, 31});
  CHECK(held_out(0, 10000, .1).size() == 993);
  for (const auto row : held_out(0, 10000, .1)) CHECK(is_held_out(0, row, .2));
}

TEST_CASE("training rows are those that are not held out, with their own contents") {
  auto data = with_numbers(40);
  const auto all = data.train.hash_of_first(40);
  hold_out(data, .2, 7);
  REQUIRE(data.validation.has_value());
  CHECK(first_pixels(*data.validation) == std::vector<int64_t>{0, 8, 11, 21, 22, 23, 24, 27, 29, 31});
  CHECK(data.train.rows == 30);
  CHECK(first_pixels(data.train).at(3) == 4);
  CHECK(first_pixels(data.test).size() == 40);
  CHECK(data.train.hash_of_first(30) != all);
  CHECK(data.train.hash_of_first(30) != data.validation->hash_of_first(10));
}

TEST_CASE("pixels of held out rows become floats like those of the others") {
  auto data = with_numbers(40);
  hold_out(data, .2, 7);
  data = with_pixels_as_floats(std::move(data), data.spec.at(0).name);
  CHECK(data.validation->sources(torch::kCPU)->spec().at(0).dtype ==
        data.train.sources(torch::kCPU)->spec().at(0).dtype);
}

TEST_CASE("a share that leaves no row to train on or to validate with is refused, with the numbers") {
  auto data = with_numbers(3);
  CHECK_THAT(refusal_of([&] { hold_out(data, 1e-9, 0); }),
             ContainsSubstring("of 3 training images leaves 3 to train on and 0 to validate with"));
}
