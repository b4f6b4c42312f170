// Augments and normalises images in one pass, on CPUs. Needs no torch.
#pragma once

#include <cstdint>

#include <lockstep/data/images/augmentation.h>
#include <lockstep/data/images/augmented_view.h>

namespace lockstep {

// A batch of images, on CPUs and GPUs.
struct AugmentedRows {
  const uint8_t* images;  // (any number, channels, height, width)
  const int64_t* rows;    // (n): numbers in the data set
  int64_t n;
  int by_row;        // 1: image i of the batch is images[rows[i]]; 0: it is images[i]
  ImageSizes shape;  // each size is 32,767 at most
  AugmentationDraws draws;
  const float* values;  // (channels, 256): what each byte becomes; unused for bytes
};

AugmentationDraws draws_of(const Augmentation& augmentation, uint64_t seed, int64_t epoch);

// Writes the batch (n, channels, height, width) as floats or as bytes. Row numbers are not checked. threads:
// of the calling thread's, as parallel_parts() uses them.
void augment_rows(const AugmentedRows& batch, float* X, int64_t threads);
void augment_rows(const AugmentedRows& batch, uint8_t* X, int64_t threads);

}  // namespace lockstep
