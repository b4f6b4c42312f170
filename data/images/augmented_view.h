// The draws and pixels of augmentation.h, for CPUs and GPUs. Needs no torch.
#pragma once

#include <cstdint>

#include <lockstep/support/cuda/kernel.h>
#include <lockstep/support/random_streams.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {

struct ImageSizes {
  int channels, height, width;
};

// The options from which images of an epoch draw, as numbers for kernels.
struct AugmentationDraws {
  uint64_t seed = 0, epoch = 0;
  int64_t least_area = 0;  // of 65536; 0: no resized crop
  int crop = 0, flip = 0, cutout = 0;
};

// The part of its original that an image shows, resized to the size of the original.
struct AugmentedView {
  int top, left, height, width;           // the part of the original; outside it is black
  int flipped;                            // 0 or 1
  int black_top, black_left, black_side;  // a square of the result
};

// e to the power of t / 2^24, times 2^24, for |t| up to 2^22.
LOCKSTEP_HOST_DEVICE constexpr int64_t exp24(int64_t t) {
  int64_t p = 2796203 + ((t * 699051) >> 24);
  p = 8388608 + ((t * p) >> 24);
  p = 16777216 + ((t * p) >> 24);
  return 16777216 + ((t * p) >> 24);
}

// The square root, rounded down, of 0 .. 2^62.
LOCKSTEP_HOST_DEVICE constexpr int64_t integer_root(int64_t number) {
  int64_t root = 0;
  for (int64_t bit = int64_t{1} << 31; bit > 0; bit >>= 1) {
    if ((root + bit) * (root + bit) <= number) root += bit;
  }
  return root;
}

LOCKSTEP_HOST_DEVICE inline int drawn_below(SplitMix64& random, int64_t n) {
  return static_cast<int>(random.below(static_cast<uint64_t>(n)));
}

LOCKSTEP_HOST_DEVICE inline void draw_resized_crop(SplitMix64& random, const ImageSizes& shape, int64_t least,
                                                   AugmentedView& view) {
  constexpr int kTries = 10;
  constexpr int64_t kHalfLogarithm = 2413252;  // log(4/3) / 2 * 2^24
  constexpr int64_t kHalf = int64_t{1} << 31;
  for (int i = 0; i < kTries; ++i) {
    const int64_t share = least + drawn_below(random, 65536 - least + 1);
    const int64_t area = (int64_t{shape.height} * shape.width * share) >> 16;
    const int64_t t = drawn_below(random, 2 * kHalfLogarithm + 1) - kHalfLogarithm;
    const int64_t side = integer_root(area << 16);  // in 1/256
    const int64_t width = (side * exp24(t) + kHalf) >> 32, height = (side * exp24(-t) + kHalf) >> 32;
    if (width < 1 || width > shape.width || height < 1 || height > shape.height) continue;
    view.height = static_cast<int>(height);
    view.width = static_cast<int>(width);
    view.top = drawn_below(random, shape.height - height + 1);
    view.left = drawn_below(random, shape.width - width + 1);
    return;
  }
}

LOCKSTEP_HOST_DEVICE inline AugmentedView draw_view(const AugmentationDraws& draws, const ImageSizes& shape,
                                                    int64_t row) {
  SplitMix64 random(draws.seed, {kAugmentationStream, draws.epoch, static_cast<uint64_t>(row)});
  AugmentedView view = {0, 0, shape.height, shape.width, 0, 0, 0, 0};
  if (draws.least_area > 0) draw_resized_crop(random, shape, draws.least_area, view);
  if (draws.crop > 0) {
    view.top = drawn_below(random, 2 * int64_t{draws.crop} + 1) - draws.crop;
    view.left = drawn_below(random, 2 * int64_t{draws.crop} + 1) - draws.crop;
  }
  if (draws.flip) view.flipped = drawn_below(random, 2);
  if (draws.cutout > 0) {
    view.black_top = drawn_below(random, shape.height) - draws.cutout / 2;
    view.black_left = drawn_below(random, shape.width) - draws.cutout / 2;
    view.black_side = draws.cutout;
  }
  return view;
}

// Two neighbours among `in` pixels that give one of `out`, in <= out. A neighbour that is none has no weight.
struct Neighbours {
  int first;          // the other one follows it
  int64_t weight[2];  // in 22 bits, as Pillow has them; their sum is 2^22, or one more
};

LOCKSTEP_HOST_DEVICE inline Neighbours neighbours_of(int pixel, int in, int out) {
  const int64_t whole = 2 * int64_t{out};
  const int64_t centre = (2 * int64_t{pixel} + 1) * in - out;  // in 1 / whole, from the centre of pixel 0
  const int first = centre < 0 ? -1 : static_cast<int>(centre / whole);
  const int64_t second = centre - whole * first;  // weight of the second one, of whole
  const int64_t kept[2] = {first < 0 ? 0 : whole - second, first + 1 < in ? second : 0};
  const int64_t sum = kept[0] + kept[1];
  Neighbours result = {first, {0, 0}};
  for (int k = 0; k < 2; ++k) result.weight[k] = ((kept[k] << 23) + sum) / (2 * sum);
  return result;
}

LOCKSTEP_HOST_DEVICE inline int weighted_mean(const Neighbours& of, int first, int second) {
  return static_cast<int>((of.weight[0] * first + of.weight[1] * second + (1 << 21)) >> 22);
}

// Pixel (y, x) of the part, enlarged. plane: (height, width) of the original.
LOCKSTEP_HOST_DEVICE inline int enlarged_pixel(const AugmentedView& view, const ImageSizes& shape,
                                               const uint8_t* plane, int y, int x) {
  const auto across = neighbours_of(x, view.width, shape.width);
  const auto down = neighbours_of(y, view.height, shape.height);
  int lines[2] = {0, 0};
  for (int k = 0; k < 2; ++k) {
    if (down.weight[k] == 0) continue;
    const uint8_t* line = plane + int64_t{view.top + down.first + k} * shape.width + view.left;
    lines[k] = weighted_mean(across, across.weight[0] == 0 ? 0 : line[across.first],
                             across.weight[1] == 0 ? 0 : line[across.first + 1]);
  }
  return weighted_mean(down, lines[0], lines[1]);
}

// Pixel (y, x) of the augmented image. plane: the original's channel (height, width).
LOCKSTEP_HOST_DEVICE inline uint8_t augmented_pixel(const AugmentedView& view, const ImageSizes& shape,
                                                    const uint8_t* plane, int y, int x) {
  const int down = y - view.black_top, across = x - view.black_left;
  if (down >= 0 && down < view.black_side && across >= 0 && across < view.black_side) return 0;
  if (view.flipped) x = shape.width - 1 - x;
  if (view.height != shape.height || view.width != shape.width) {
    return static_cast<uint8_t>(enlarged_pixel(view, shape, plane, y, x));
  }
  y += view.top;
  x += view.left;
  const bool inside = y >= 0 && y < shape.height && x >= 0 && x < shape.width;
  return inside ? plane[int64_t{y} * shape.width + x] : uint8_t{0};
}

}  // namespace lockstep
