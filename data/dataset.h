// Labelled images in host memory, and sources of batches of them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
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

// The tensors of a batch of these images.
BatchSpec image_spec(const ImageSet& set);

// Returns a source of batches on `device`. The whole set is copied there once as uint8; on the host it is
// shared. A batch is an index-select and a division by 255, as float.
std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device);

// Returns a factory of such sources. It shares the memory of the set.
SourceFactory resident_sources(const ImageSet& set);

}  // namespace lockstep
