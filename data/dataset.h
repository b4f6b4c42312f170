// Labelled images in host memory, and the two places they come from.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <lockstep/support/types.h>

namespace lockstep {

// Fashion-MNIST's images, and those that are made like them.
inline constexpr int kImageSide = 28;  // pixels, rows and columns
inline constexpr int kImageClasses = 10;

struct ImageSet {
  torch::Tensor images;  // (n, 1, 28, 28) uint8, contiguous, host
  torch::Tensor labels;  // (n) uint8, 0 .. classes-1, contiguous, host

  int64_t size() const { return images.size(0); }
};

struct Dataset {
  std::string name;  // as a plan prints it: "Fashion-MNIST" or "synthetic"
  ImageSet train;
  ImageSet test;
  int64_t classes = 10;
};

// The first `rows` rows of a set, sharing its memory. Throws UsageError unless 1 <= rows <= set.size().
ImageSet first_rows(const ImageSet& set, int64_t rows);

// A source of batches on `device`: the whole set is copied there once (shared, not copied, when it is the
// host), still uint8. A batch is an index-select and a division by 255, as float.
std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device);

// Makes such sources of this set, whose memory it shares.
SourceFactory resident_sources(const ImageSet& set);

}  // namespace lockstep
