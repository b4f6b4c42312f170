// Labelled images in host memory, and sources of batches of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/support/types.h>

namespace lockstep {

// Images of data sets of the MNIST family, and synthetic ones.
inline constexpr int kImageSide = 28;  // pixels, rows and columns
inline constexpr int kImageClasses = 10;

struct ImageSet {
  torch::Tensor images;  // (n, 1, 28, 28) uint8, contiguous, host
  torch::Tensor labels;  // (n) uint8, 0 .. classes-1, contiguous, host

  int64_t size() const { return images.size(0); }
};

struct Dataset {
  std::string name;  // "Fashion-MNIST", "synthetic", or that of the folder
  ImageSet train;
  ImageSet test;
  int64_t classes = 10;
};

// Returns the first `rows` rows of a set, sharing its memory. Throws UsageError unless 1 <= rows <=
// set.size().
ImageSet first_rows(const ImageSet& set, int64_t rows);

// Returns hashes of the images and labels. Other bytes have other hashes.
std::string hash_of(const ImageSet& set);

// The tensors of a batch of these images.
BatchSpec image_spec(const ImageSet& set);

// Returns a source of batches on `device`. The whole set is copied there once as uint8; on the host it is
// shared. A batch is an index-select and a division by 255, as float.
std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device);

// Returns a factory of such sources. It shares the memory of the set.
SourceFactory resident_sources(const ImageSet& set);

}  // namespace lockstep
