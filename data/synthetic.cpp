#include <lockstep/data/synthetic.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include <lockstep/data/formats/class_names.h>
#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {
namespace {

// Sizes of the 28 x 28 images that the others are scaled from.
constexpr int kSide = 28, kMaxShift = 3, kLeastRadius = 4, kMargin = 4;
constexpr int kMostBlobs = 10;
constexpr int64_t kMostChannels = 4, kMostSide = 1'024, kMostClasses = 256;

// The sizes of an image, and of a prototype, in which each shifted view stays inside.
struct PaddedSizes {
  explicit PaddedSizes(const ImageShape& shape)
      : channels(static_cast<int>(shape.channels)),
        height(static_cast<int>(shape.height)),
        width(static_cast<int>(shape.width)),
        smaller(std::min(height, width)),
        max_shift(smaller * kMaxShift / kSide) {}

  int padded_height() const { return height + 2 * max_shift; }
  int padded_width() const { return width + 2 * max_shift; }

  int channels, height, width, smaller, max_shift;
};

enum Stream : uint64_t {
  kPrototypes,
  kTrainRows,
  kTestRows
};  // first keys of the draws; all others: support/random_streams.h

// A channel of a class, padded_height() lines of padded_width() pixels.
using Prototype = std::vector<uint8_t>;

// A place in a side, away from its ends where there is room.
int draw_place(SplitMix64& random, int side) {
  const int margin = std::min(kMargin, (side - 1) / 2);
  return margin + static_cast<int>(random.below(static_cast<uint64_t>(side - 2 * margin)));
}

void add_blob(SplitMix64& random, const PaddedSizes& sizes, std::vector<int>& sum) {
  const int row = sizes.max_shift + draw_place(random, sizes.height);
  const int column = sizes.max_shift + draw_place(random, sizes.width);
  const int drawn = kLeastRadius + static_cast<int>(random.below(5));
  const int radius = std::max(1, drawn * sizes.smaller / kSide);
  const int height = 192 + static_cast<int>(random.below(64));
  auto* pixel = sum.data();
  for (int y = 0; y < sizes.padded_height(); ++y) {
    for (int x = 0; x < sizes.padded_width(); ++x) {
      const int distance = (y - row) * (y - row) + (x - column) * (x - column);  // squared
      *pixel++ += height * std::max(0, radius * radius - distance) / (radius * radius);
    }
  }
}

// Adds up blobs that fall off from their centre as a parabola. Each class has one more blob than the one
// before, so that classes differ in brightness too: that makes weights near zero start to learn.
Prototype make_prototype(uint64_t seed, uint64_t label, uint64_t channel, const PaddedSizes& sizes) {
  SplitMix64 random(seed, {kPrototypes, label});
  if (channel > 0) random.add_key(channel);
  std::vector<int> sum(static_cast<size_t>(sizes.padded_height()) * sizes.padded_width());
  for (uint64_t blob = 0; blob <= label % kMostBlobs; ++blob) add_blob(random, sizes, sum);
  Prototype prototype;
  for (const int value : sum) prototype.push_back(static_cast<uint8_t>(std::min(255, value)));
  return prototype;
}

// The prototypes of a class, one per channel.
using Class = std::vector<Prototype>;

// A shifted, weighted view of a class.
struct View {
  const Class* prototypes;
  int row, column;  // of its top left corner
  int weight;       // of 256

  const uint8_t* line(int channel, int y, const PaddedSizes& sizes) const {
    const auto first = static_cast<size_t>(row + y) * sizes.padded_width() + column;
    return (*prototypes)[channel].data() + first;
  }
};

View draw_view(SplitMix64& random, const Class& prototypes, int weight, const PaddedSizes& sizes) {
  const auto shifts = static_cast<uint64_t>(2 * sizes.max_shift + 1);
  const int row = static_cast<int>(random.below(shifts));
  const int column = static_cast<int>(random.below(shifts));
  return {&prototypes, row, column, weight};
}

// Writes a line of an image.
uint8_t* draw_line(SplitMix64& random, const uint8_t* own, int own_weight, const uint8_t* other,
                   int other_weight, int width, uint8_t* pixels) {
  uint64_t noise = 0;
  for (int x = 0; x < width; ++x) {
    if (x % 8 == 0) noise = random.next();  // a byte for each of the next 8 pixels
    const int signal = (own_weight * own[x] + other_weight * other[x]) / 256;
    const int grain = static_cast<int>(noise % 256) / 2 - 64;
    *pixels++ = static_cast<uint8_t>(std::clamp(signal + grain, 0, 255));
    noise /= 256;
  }
  return pixels;
}

void draw_image(SplitMix64& random, const View& own, const View& other, const PaddedSizes& sizes,
                uint8_t* pixels) {
  for (int channel = 0; channel < sizes.channels; ++channel) {
    for (int y = 0; y < sizes.height; ++y) {
      pixels = draw_line(random, own.line(channel, y, sizes), own.weight, other.line(channel, y, sizes),
                         other.weight, sizes.width, pixels);
    }
  }
}

ImageSet make_set(uint64_t seed, Stream stream, const std::vector<Class>& classes, int64_t rows,
                  const ImageShape& shape) {
  ImageSet set = {torch::empty({rows, shape.channels, shape.height, shape.width}, torch::kUInt8),
                  torch::empty({rows}, torch::kUInt8)};
  const PaddedSizes sizes(shape);
  auto* pixels = set.images.mutable_data_ptr<uint8_t>();
  auto* labels = set.labels.mutable_data_ptr<uint8_t>();
  for (int64_t row = 0; row < rows; ++row) {
    SplitMix64 random(seed, {stream, static_cast<uint64_t>(row)});
    const uint64_t label = random.below(classes.size());
    const uint64_t other = random.below(classes.size());
    const int weight =
        112 + static_cast<int>(random.below(145));  // below 128 the other prototype is the stronger one
    const View own_view = draw_view(random, classes[label], weight, sizes);
    const View other_view = draw_view(random, classes[other], 256 - weight, sizes);
    draw_image(random, own_view, other_view, sizes,
               pixels + row * shape.channels * shape.height * shape.width);
    labels[row] = static_cast<uint8_t>(label);
  }
  return set;
}

void check_count(std::string_view what, int64_t rows) {
  if (rows < 1) throw UsageError(fmt::format("{} {} rows were asked for, 1 is the least", rows, what));
}

void check_range(std::string_view what, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return;
  throw UsageError(
      fmt::format("synthetic images of {} {} were asked for, 1 to {} can be made", value, what, most));
}

}  // namespace

Dataset make_synthetic(uint64_t seed, int64_t train_rows, int64_t test_rows, const ImageShape& shape,
                       int64_t classes) {
  check_count("synthetic training", train_rows);
  check_count("synthetic test", test_rows);
  check_range("channels", shape.channels, kMostChannels);
  check_range("pixels in height", shape.height, kMostSide);
  check_range("pixels in width", shape.width, kMostSide);
  check_range("classes", classes, kMostClasses);
  std::vector<Class> prototypes(static_cast<size_t>(classes));
  for (uint64_t label = 0; label < prototypes.size(); ++label) {
    for (int64_t channel = 0; channel < shape.channels; ++channel) {
      prototypes[label].push_back(
          make_prototype(seed, label, static_cast<uint64_t>(channel), PaddedSizes(shape)));
    }
  }
  return {.name = "synthetic",
          .train = make_set(seed, kTrainRows, prototypes, train_rows, shape),
          .test = make_set(seed, kTestRows, prototypes, test_rows, shape),
          .classes = classes,
          .class_names = numbered_classes(classes),
          .kind = "synthetic"};
}

}  // namespace lockstep
