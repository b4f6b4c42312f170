// Data that a network is tested on, held against those of its training.
#include <lockstep/tests/catch.h>

#include <torch/types.h>

#include <string>
#include <vector>

#include <lockstep/app/commands/check_facts.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/data/images/image_tree.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Shape = std::vector<int64_t>;
using ListedNames = std::vector<std::string>;

namespace {

const NetworkFacts kKnown{.input = "images",
                          .row_shape = {3, 32, 32},
                          .bytes = true,
                          .classes = {"cat", "dog", "2"},
                          .image_size = 32};

LoadedData data_of(const Shape& shape, const ListedNames& names, torch::ScalarType dtype = torch::kUInt8) {
  LoadedData data;
  data.kind = "image folder";
  data.set.name = "pets";
  data.set.spec = {{.name = "images", .dtype = dtype, .row_shape = shape},
                   {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}};
  data.set.classes = std::ssize(names);
  data.set.class_names = names;
  return data;
}

}  // namespace

TEST_CASE("data like those of the training raise no question, nor do classes without names") {
  CHECK(check_facts(kKnown, data_of({3, 32, 32}, {"cat", "dog", "2"})).empty());
  CHECK(check_facts(kKnown, data_of({3, 32, 32}, {"cat", "1", "mouse"})).empty());
}

TEST_CASE("rows of another shape are refused with both shapes") {
  for (const auto& shape : {Shape{3, 64, 64}, Shape{1, 32, 32}, Shape{3072}}) {
    CHECK_THAT(refusal_of<DataError>([&] {
                 check_facts(kKnown, data_of(shape, {"cat", "dog", "2"}));
               }),
               ContainsSubstring("[3, 32, 32]") && ContainsSubstring("pets"));
  }
  CHECK_THAT(refusal_and_hint<DataError>([] {
               check_facts(kKnown, data_of({3, 64, 64}, {"cat"}));
             }),
             ContainsSubstring("[3, 64, 64]") && ContainsSubstring("--image-size 32"));
  auto synthetic = data_of({1, 28, 28}, {"0"});
  synthetic.kind = "synthetic";
  CHECK_THAT(refusal_and_hint<DataError>([&] { check_facts(kKnown, synthetic); }),
             ContainsSubstring("--synthetic-shape 3x32x32:3"));
}

TEST_CASE("a size that was asked for is only said, as long as the channels fit") {
  auto larger = data_of({3, 64, 64}, {"cat", "dog", "2"});
  larger.flags.image_size = 64;
  const auto odd = check_facts(kKnown, larger);
  REQUIRE(odd.size() == 1);
  CHECK_THAT(odd[0], ContainsSubstring("[3, 32, 32]") && ContainsSubstring("[3, 64, 64]"));
  auto grey = data_of({1, 64, 64}, {"cat", "dog", "2"});
  grey.flags.image_size = 64;
  CHECK_THROWS_AS(check_facts(kKnown, grey), DataError);
}

TEST_CASE("classes of other names, and more classes, are refused by name") {
  CHECK_THAT(refusal_of<DataError>([] {
               check_facts(kKnown, data_of({3, 32, 32}, {"cat", "wolf", "2"}));
             }),
             ContainsSubstring("class 1 is 'dog'") && ContainsSubstring("'wolf' in pets"));
  CHECK_THAT(refusal_of<DataError>([] {
               check_facts(kKnown, data_of({3, 32, 32}, {"cat", "dog", "2", "3"}));
             }),
             ContainsSubstring("knows 3 classes, pets has 4"));
}

TEST_CASE("fewer classes, and floats in the place of bytes, are said") {
  const auto fewer = check_facts(kKnown, data_of({3, 32, 32}, {"cat", "dog"}));
  REQUIRE(fewer.size() == 1);
  CHECK_THAT(fewer[0], ContainsSubstring("knows 3 classes, pets has the first 2"));
  const auto floats = check_facts(kKnown, data_of({3, 32, 32}, kKnown.classes, torch::kFloat32));
  REQUIRE(floats.size() == 1);
  CHECK_THAT(floats[0], ContainsSubstring("trained on bytes, pets holds floats"));
}

TEST_CASE("files of images get the network's size and channels, unless others are given") {
  const ImageTree images = {"train/cat/1.png", "test/cat/1.png"};
  const auto flags = with_facts({.path = images.path().string()}, kKnown);
  CHECK(flags.image_size == 32);
  CHECK(flags.channels == 3);
  CHECK(with_facts({.path = images.path().string(), .image_size = 64}, kKnown).image_size == 64);
  auto as_they_are = kKnown;
  as_they_are.image_size = 0;
  CHECK_FALSE(with_facts({.path = images.path().string()}, as_they_are).image_size.has_value());
  for (const auto* other : {"synthetic", "rows.safetensors"}) {
    const auto same = with_facts({.path = other}, kKnown);
    CHECK_FALSE(same.image_size.has_value());
    CHECK_FALSE(same.channels.has_value());
  }
}
