// The source behind augmented() and normalized().
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <lockstep/data/images/augment_rows.h>
#include <lockstep/data/images/normalize.h>
#include <lockstep/data/resident_rows_source.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct ImageChanges {
  Augmentation augmentation = {};
  uint64_t seed = 0;
  std::optional<Normalization> normalization = {};  // none: bytes
};

// Returns the place of the images in the batches of this spec. Throws DataError.
size_t image_input(const BatchSpec& spec, const std::string& input);

// Returns the sizes of these images. Throws DataError for tensors that are none.
ImageSizes image_sizes(const TensorSpec& tensor);

// Gives the rows of another source with its images changed.
class ImageSource : public BatchSource {
 public:
  // Throws as augmented() and normalized() do.
  ImageSource(std::shared_ptr<const BatchSource> bytes, size_t image, ImageChanges changes,
              torch::Device device);

  int64_t size() const override { return bytes_->size(); }
  BatchSpec spec() const override;
  bool can_be_captured() const override;
  std::string settings() const override;
  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    bytes_->will_need(rows, epoch);
  }
  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override;

  const std::shared_ptr<const BatchSource>& bytes() const { return bytes_; }
  size_t image() const { return image_; }
  const ImageChanges& changes() const { return changes_; }

 private:
  torch::Tensor originals(const torch::Tensor& rows, int64_t epoch, Batch& into) const;
  void gather_by_one_kernel(const torch::Tensor& rows, Batch& into) const;
  void change(const torch::Tensor& images, bool by_row, const torch::Tensor& rows, int64_t epoch,
              const torch::Tensor& into) const;

  const std::shared_ptr<const BatchSource> bytes_;
  const ResidentRows* const resident_;  // bytes_, if that is what it is
  const size_t image_;
  const ImageChanges changes_;
  const torch::Device device_;
  const std::shared_ptr<const BatchSpec> spec_of_bytes_;
  const torch::Tensor resident_images_;
  const bool by_torch_;          // which divides many bytes at once on a CPU, and rows of any shape
  const bool by_one_kernel_;     // which divides resident images, and gathers their labels, on a GPU
  const ImageSizes shape_;       // unless by_torch_
  const torch::Tensor values_;   // (channels, 256) float on the device; undefined for bytes, and by_torch_
  const torch::Tensor divisor_;  // 255 on the device, by_torch_: a GPU multiplies by the inverse of a number
};

}  // namespace lockstep
