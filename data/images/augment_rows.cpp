#include <lockstep/data/images/augment_rows.h>

#include <algorithm>
#include <cmath>

#include <lockstep/support/cpu/parallel_parts.h>

namespace lockstep {
namespace {

uint8_t value_of(const AugmentedRows&, int, uint8_t pixel, const uint8_t*) { return pixel; }
float value_of(const AugmentedRows& batch, int channel, uint8_t pixel, const float*) {
  return batch.values[256 * channel + pixel];
}

template <class Out>
void augment_row(const AugmentedRows& batch, int64_t i, Out* X) {
  const auto shape = batch.shape;
  const auto view = draw_view(batch.draws, shape, batch.rows[i]);
  const int64_t plane = int64_t{shape.height} * shape.width;
  const auto* const image = batch.images + (batch.by_row ? batch.rows[i] : i) * shape.channels * plane;
  for (int channel = 0; channel < shape.channels; ++channel) {
    const auto* const pixels = image + channel * plane;
    for (int y = 0; y < shape.height; ++y) {
      for (int x = 0; x < shape.width; ++x) {
        *X = value_of(batch, channel, augmented_pixel(view, shape, pixels, y, x), X);
        ++X;
      }
    }
  }
}

template <class Out>
void augment_all(const AugmentedRows& batch, Out* X, int64_t threads) {
  const int64_t size = int64_t{batch.shape.channels} * batch.shape.height * batch.shape.width;
  parallel_ranges(batch.n, std::clamp<int64_t>(batch.n, 1, threads),
                  [&](int64_t first, int64_t last, int64_t) {
                    for (int64_t i = first; i < last; ++i) augment_row(batch, i, X + i * size);
                  });
}

}  // namespace

AugmentationDraws draws_of(const Augmentation& augmentation, uint64_t seed, int64_t epoch) {
  const auto& resized = augmentation.resized_crop;
  return {.seed = seed,
          .epoch = static_cast<uint64_t>(epoch),
          .least_area = resized ? std::max<int64_t>(1, std::llround(resized->least_area * 65536)) : 0,
          .crop = augmentation.crop,
          .flip = augmentation.flip ? 1 : 0,
          .cutout = augmentation.cutout};
}

void augment_rows(const AugmentedRows& batch, float* X, int64_t threads) { augment_all(batch, X, threads); }
void augment_rows(const AugmentedRows& batch, uint8_t* X, int64_t threads) { augment_all(batch, X, threads); }

}  // namespace lockstep
