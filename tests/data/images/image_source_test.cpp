// Sources that augment and normalise images, and what measure() finds. The bytes of augmentations are in
// augmentation_test.cpp.
#include <torch/data/datasets/base.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/dataset_rows.h>
#include <lockstep/data/images/augment.h>
#include <lockstep/data/images/augment_rows.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/resident_rows.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using RowNumbers = std::vector<int64_t>;

constexpr auto kAll = "crop:2,flip,cutout:3";

torch::Tensor many_bytes(int64_t rows) {
  return torch::arange(rows * 3 * 8 * 9).mul(37).remainder(251).to(torch::kUInt8).view({rows, 3, 8, 9});
}

SourceFactory resident_images(const torch::Tensor& images) {
  return resident_rows({{"images", images}, {"labels", torch::arange(images.size(0)), Role::kTarget}});
}

// The same rows, of a data set that threads read.
struct ImageTable : torch::data::datasets::Dataset<ImageTable> {
  explicit ImageTable(torch::Tensor all) : images(std::move(all)) {}
  torch::data::Example<> get(size_t row) override {
    const auto i = static_cast<int64_t>(row);
    return {images[i], torch::tensor(i)};
  }
  std::optional<size_t> size() const override { return static_cast<size_t>(images.size(0)); }

  torch::Tensor images;
};

SourceFactory read_images(const torch::Tensor& images, int workers) {
  return dataset_rows(ImageTable(images),
                      {.spec = resident_images(images)(torch::kCPU)->spec(), .workers = workers});
}

Batch images_of(const BatchSource& source, const RowNumbers& rows, int64_t epoch) {
  Batch batch(std::make_shared<const BatchSpec>(source.spec()));
  source.gather(torch::tensor(rows, torch::kInt64), epoch, batch);
  return batch;
}

Batch images_of(const SourceFactory& sources, const RowNumbers& rows, int64_t epoch = 0) {
  return images_of(*sources(torch::kCPU), rows, epoch);
}

}  // namespace

TEST_CASE("augmented rows are the same for any number of shards and workers, resident and read") {
  const auto bytes = many_bytes(12);
  const auto augmentation = parse_augmentation(kAll);
  const RowNumbers rows = {7, 0, 11, 3, 3, 5};
  auto expected = torch::empty({6, 3, 8, 9}, torch::kUInt8);
  augment_rows(
      {bytes.const_data_ptr<uint8_t>(), rows.data(), 6, 1, {3, 8, 9}, draws_of(augmentation, 4, 2), nullptr},
      expected.mutable_data_ptr<uint8_t>(), 1);
  CHECK_FALSE(expected.equal(bytes.index_select(0, torch::tensor(rows))));
  std::vector<SourceFactory> all = {resident_images(bytes)};
  for (const int workers : {0, 1, 3}) all.push_back(read_images(bytes, workers));
  for (const auto& sources : all) {
    const auto source = augmented(sources, augmentation, /*seed=*/4)(torch::kCPU);
    CHECK((source->spec() == sources(torch::kCPU)->spec()));
    for (const size_t shards : {1, 2, 3}) {
      source->will_need(rows, 2);
      std::vector<torch::Tensor> parts, labels;
      for (size_t i = 0; i < shards; ++i) {
        const auto part = images_of(*source,
                                    {rows.begin() + static_cast<int64_t>(i * 6 / shards),
                                     rows.begin() + static_cast<int64_t>((i + 1) * 6 / shards)},
                                    2);
        parts.push_back(part.input());
        labels.push_back(part.target());
      }
      CHECK(torch::cat(parts).equal(expected));
      CHECK(torch::cat(labels).equal(torch::tensor(rows)));
    }
    CHECK_FALSE(images_of(*source, rows, 3).input().equal(expected));
    CHECK(images_of(*source, {}, 2).input().sizes() == torch::IntArrayRef({0, 3, 8, 9}));
  }
}

TEST_CASE("pixels are normalised to the bits that double precision rounds to") {
  struct Case {
    int byte;
    double mean, deviation;
    uint32_t bits;
  };
  // Python: struct.pack("<f", (byte / 255 - mean) / deviation)
  const std::vector<Case> cases = {{137, .4914, .247, 0x3e3e1a59},
                                   {0, .4822, .2435, 0xbffd7a0f},
                                   {255, .4465, .2616, 0x400769b0},
                                   {1, .485, .229, 0xc006732b},
                                   {77, .5, .5, 0xbecacacb}};
  for (const auto& [byte, mean, deviation, bits] : cases) {
    INFO(byte);
    const auto image = torch::full({1, 2, 1, 1}, byte, torch::kUInt8);
    for (const bool each : {true, false}) {
      const Normalization by =
          each ? Normalization{{0, mean}, {1, deviation}} : Normalization{{mean}, {deviation}};
      const auto X = images_of(normalized(resident_images(image), by), {0}).input();
      CHECK(std::bit_cast<uint32_t>(X[0][1][0][0].item<float>()) == bits);
    }
  }
}

TEST_CASE("one pass over resident rows gives the bits of three passes") {
  const auto bytes = many_bytes(9);
  const auto augmentation = parse_augmentation(kAll);
  const RowNumbers rows = {8, 1, 1, 4};
  for (const Normalization& by : {Normalization{}, Normalization{{.4, .5, .6}, {.2, .3, .1}}}) {
    const auto one = images_of(normalized(augmented(resident_images(bytes), augmentation, 4), by), rows, 3);
    const auto after = images_of(augmented(resident_images(bytes), augmentation, 4), rows, 3).input();
    const auto three = images_of(normalized(resident_images(after), by), {0, 1, 2, 3});
    CHECK(one.input().dtype() == torch::kFloat32);
    CHECK(one.input().equal(three.input()));
    const auto read = images_of(normalized(augmented(read_images(bytes, 2), augmentation, 4), by), rows, 3);
    CHECK(read.input().equal(one.input()));
    CHECK(read.target().equal(torch::tensor(rows)));
  }
}

TEST_CASE("a batch of images is written in place where it fits; strides of the originals do not count") {
  const auto bytes = many_bytes(6);
  const auto strided = bytes.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2});
  for (const Normalization& by : {Normalization{}, Normalization{{.5}, {.25}}}) {
    const auto source = normalized(resident_images(bytes), by)(torch::kCPU);
    auto batch = images_of(*source, {0, 1}, 0);
    const auto X = batch.input();
    source->gather(torch::tensor({5, 4}), 0, batch);
    CHECK(batch.input().is_same(X));
    CHECK(images_of(normalized(resident_images(strided), by), {5, 4}).input().equal(X));
  }
}

TEST_CASE("sources say what they depend on, and whether a graph may hold them") {
  const auto bytes = resident_images(many_bytes(4));
  const auto flip = parse_augmentation("flip");
  struct Case {
    SourceFactory sources;
    bool captured;
    std::string settings;
  };
  const std::vector<Case> cases = {
      {normalized(bytes, {}), true, ""},
      {normalized(bytes, {{.5}, {.25}}), true, "images normalised by mean 0.5, deviation 0.25"},
      {augmented(bytes, {}, 9), true, ""},
      {augmented(bytes, flip, 9), false, "images augmented by flip with seed 9"},
      {normalized(augmented(bytes, flip, 9), {{.5}, {.25}}), false,
       "images augmented by flip with seed 9; images normalised by mean 0.5, deviation 0.25"},
      {normalized(read_images(many_bytes(4), 1), {{.5}, {.25}}), false,
       "rows drawn with seed 0; images normalised by mean 0.5, deviation 0.25"}};
  for (const auto& [sources, captured, settings] : cases) {
    const auto source = sources(torch::kCPU);
    CHECK(source->can_be_captured() == captured);
    CHECK(source->settings() == settings);
    CHECK(source->size() == 4);
  }
}

TEST_CASE("images that cannot be augmented or normalised are refused") {
  const auto bytes = resident_images(many_bytes(4));
  const auto floats = resident_images(many_bytes(4).to(torch::kFloat32));
  const auto flip = parse_augmentation("flip");
  const auto made = [](const SourceFactory& sources) { sources(torch::kCPU); };
  CHECK_THAT(refusal_of<DataError>([&] { made(normalized(floats, {})); }), ContainsSubstring("images Float"));
  CHECK_THAT(refusal_of<DataError>([&] { made(augmented(normalized(bytes, {}), flip, 1)); }),
             ContainsSubstring("images Float"));
  CHECK_THAT(refusal_of<DataError>([&] { made(augmented(bytes, flip, 1, "pixels")); }),
             ContainsSubstring("an input pixels"));
  const auto flat = resident_rows({{"X", torch::zeros({4, 5}, torch::kUInt8)}});
  CHECK_THAT(refusal_of<DataError>([&] { made(augmented(flat, flip, 1, "X")); }),
             ContainsSubstring("X Byte"));
  CHECK(refusal_of([&] {
          made(normalized(bytes, {{.1, .2}, {.1, .2}}));
        }) == "means of 2 channels do not normalise images of 3");
  CHECK(refusal_of([&] {
          made(normalized(bytes, {{.1}, {}}));
        }) == "1 means and 0 deviations do not normalise images");
  CHECK(refusal_of([&] {
          made(normalized(bytes, {{.1}, {0}}));
        }) == "mean 0.1 and deviation 0 do not normalise images");
  CHECK_THROWS_AS(made(normalized(bytes, {{std::nan("")}, {1}})), UsageError);
}

TEST_CASE("mean and deviation are those of the pixels of each channel") {
  auto images = torch::zeros({600, 2, 1, 2}, torch::kUInt8);  // more than are measured together
  images.select(1, 0).select(2, 1).fill_(255);
  images.select(1, 1).fill_(51);
  for (const auto& sources : {resident_images(images), read_images(images, 2)}) {
    const auto [normalization, rows, deviation] = measure({.rows = 600, .sources = sources});
    CHECK(rows == 600);
    CHECK(normalization.mean == std::vector<double>{.5, 51. / 255});
    CHECK(normalization.deviation == std::vector<double>{.5, 1});
    CHECK(deviation == std::vector<double>{.5, 0});
  }
}

TEST_CASE("a sample has the rows that Python draws") {
  // Row i has the byte 2^i, so that the mean says which rows there were.
  const auto bits = torch::tensor({1, 2, 4, 8, 16, 32, 64, 128}, torch::kUInt8).view({8, 1, 1, 1});
  struct Case {
    int64_t sample;
    uint64_t seed;
    int sum;
  };
  for (const auto& [sample, seed, sum] :
       {Case{3, 1, 176}, Case{3, 2, 14}, Case{1, 7, 8}, Case{8, 1, 255}, Case{99, 1, 255}}) {
    const auto measured =
        measure({.rows = 8, .sources = resident_images(bits)}, {.sample = sample, .seed = seed});
    const auto rows = measured.rows;
    CHECK(rows == std::min<int64_t>(sample, 8));
    CHECK(std::llround(measured.normalization.mean.at(0) * 255 * static_cast<double>(rows)) == sum);
  }
  CHECK_THROWS_AS(measure({.rows = 8, .sources = resident_images(bits)}, {.sample = -1}), UsageError);
  CHECK_THROWS_AS(measure({.rows = 0, .sources = resident_images(bits.narrow(0, 0, 0))}), DataError);
}
