// Labelled images in host memory, and sources of batches of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/support/types.h>

namespace lockstep {

struct ImageShape {
  int64_t channels = 1, height = 28, width = 28;

  bool operator==(const ImageShape&) const = default;
};

// "3 x 32 x 32": channels, height and width.
std::string to_string(const ImageShape& shape);

struct ImageSet {
  torch::Tensor images;  // (n, channels, height, width) uint8, contiguous, host
  torch::Tensor labels;  // (n) uint8, 0 .. classes-1, contiguous, host

  int64_t size() const { return images.size(0); }
  ImageShape shape() const { return {images.size(1), images.size(2), images.size(3)}; }
};

// Train and test have images of one shape.
struct Dataset {
  std::string name;  // "Fashion-MNIST", "synthetic", or that of the folder
  ImageSet train;
  ImageSet test;
  int64_t classes = 10;
  std::vector<std::string> class_names = {};  // as many; their numbers if the files name none
  std::string kind = {};                      // "IDX", "CIFAR-10", "CIFAR-100" or "synthetic"
  std::string digest = {};                    // SHA-256 of the files' names and sizes; empty: no files
  std::vector<std::string> notices = {};      // what is odd in the files: one sentence each
};

// Returns a sentence for the images that are in train and in test with the same pixels, which a test then
// counts as unseen; empty: there are none.
std::string same_in_train_and_test(const Dataset& set);

// Returns the first `rows` rows of a set, sharing its memory. Throws UsageError unless 1 <= rows <=
// set.size().
ImageSet first_rows(const ImageSet& set, int64_t rows);

// Returns hashes of the images and labels. Other bytes have other hashes.
std::string hash_of(const ImageSet& set);

// Returns a factory of sources of these images: "images" (channels, height, width) uint8 and the target
// "labels" () int64. The whole set is copied to each device once; on the host its images are shared.
SourceFactory resident_images(const ImageSet& set);

// The same with images / 255 as float: normalized() (images/normalize.h) without a mean.
SourceFactory resident_sources(const ImageSet& set);

}  // namespace lockstep
