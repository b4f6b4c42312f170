#include <lockstep/data/synthetic.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <string_view>

#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {
namespace {

constexpr int kMaxShift = 3;
constexpr int kPadded = kImageSide + 2 * kMaxShift;  // side of a prototype; a shifted view stays inside

enum Stream : uint64_t {
  kPrototypes,
  kTrainRows,
  kTestRows
};  // first key of the random streams; 3: parallel/replica_random.cpp, 4: data_loader.cpp

using Prototype = std::array<std::array<uint8_t, kPadded>, kPadded>;

// Adds up blobs that fall off from their centre as a parabola. Each class has one more blob than the one
// before, so that classes differ in brightness too: that makes weights near zero start to learn.
Prototype make_prototype(uint64_t seed, uint64_t label) {
  SplitMix64 random(seed, {kPrototypes, label});
  std::array<std::array<int, kPadded>, kPadded> sum = {};
  for (uint64_t blob = 0; blob <= label; ++blob) {
    const int row = kMaxShift + 4 + static_cast<int>(random.below(kImageSide - 8));
    const int column = kMaxShift + 4 + static_cast<int>(random.below(kImageSide - 8));
    const int radius = 4 + static_cast<int>(random.below(5));
    const int height = 192 + static_cast<int>(random.below(64));
    for (int y = 0; y < kPadded; ++y) {
      for (int x = 0; x < kPadded; ++x) {
        const int distance = (y - row) * (y - row) + (x - column) * (x - column);  // squared
        sum[y][x] += height * std::max(0, radius * radius - distance) / (radius * radius);
      }
    }
  }
  Prototype prototype;
  for (int y = 0; y < kPadded; ++y) {
    for (int x = 0; x < kPadded; ++x) prototype[y][x] = static_cast<uint8_t>(std::min(255, sum[y][x]));
  }
  return prototype;
}

// A shifted, weighted view of a prototype.
struct View {
  const Prototype* prototype;
  uint64_t row, column;  // of its top left corner
  int weight;            // of 256
};

View draw_view(SplitMix64& random, const Prototype& prototype, int weight) {
  const uint64_t row = random.below(2 * kMaxShift + 1);
  const uint64_t column = random.below(2 * kMaxShift + 1);
  return {&prototype, row, column, weight};
}

void draw_image(SplitMix64& random, const View& own, const View& other, uint8_t* pixels) {
  uint64_t noise = 0;
  for (int y = 0; y < kImageSide; ++y) {
    const uint8_t* own_line = &(*own.prototype)[own.row + y][own.column];
    const uint8_t* other_line = &(*other.prototype)[other.row + y][other.column];
    for (int x = 0; x < kImageSide; ++x) {
      if (x % 8 == 0) noise = random.next();  // a byte for each of the next 8 pixels
      const int signal = (own.weight * own_line[x] + other.weight * other_line[x]) / 256;
      const int grain = static_cast<int>(noise % 256) / 2 - 64;
      *pixels++ = static_cast<uint8_t>(std::clamp(signal + grain, 0, 255));
      noise /= 256;
    }
  }
}

ImageSet make_set(uint64_t seed, Stream stream, const std::array<Prototype, kImageClasses>& prototypes,
                  int64_t rows) {
  ImageSet set = {torch::empty({rows, 1, kImageSide, kImageSide}, torch::kUInt8),
                  torch::empty({rows}, torch::kUInt8)};
  auto* pixels = set.images.mutable_data_ptr<uint8_t>();
  auto* labels = set.labels.mutable_data_ptr<uint8_t>();
  for (int64_t row = 0; row < rows; ++row) {
    SplitMix64 random(seed, {stream, static_cast<uint64_t>(row)});
    const uint64_t label = random.below(kImageClasses);
    const uint64_t other = random.below(kImageClasses);
    const int weight =
        112 + static_cast<int>(random.below(145));  // below 128 the other prototype is the stronger one
    const View own_view = draw_view(random, prototypes[label], weight);
    const View other_view = draw_view(random, prototypes[other], 256 - weight);
    draw_image(random, own_view, other_view, pixels + row * kImageSide * kImageSide);
    labels[row] = static_cast<uint8_t>(label);
  }
  return set;
}

void check_count(std::string_view what, int64_t rows) {
  if (rows < 1) throw UsageError(fmt::format("{} {} rows were asked for, 1 is the least", rows, what));
}

}  // namespace

Dataset make_synthetic(uint64_t seed, int64_t train_rows, int64_t test_rows) {
  check_count("synthetic training", train_rows);
  check_count("synthetic test", test_rows);
  std::array<Prototype, kImageClasses> prototypes;
  for (uint64_t label = 0; label < kImageClasses; ++label) prototypes[label] = make_prototype(seed, label);
  return {"synthetic", make_set(seed, kTrainRows, prototypes, train_rows),
          make_set(seed, kTestRows, prototypes, test_rows), kImageClasses};
}

}  // namespace lockstep
