#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>

#include <lockstep/data/dataset.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// `tensor` if a batch can be written into it, else a new one.
torch::Tensor fitting(const torch::Tensor& tensor, at::IntArrayRef sizes,
                      const torch::TensorOptions& options) {
  const bool fits = tensor.defined() && tensor.sizes() == sizes && tensor.is_contiguous() &&
                    tensor.device() == options.device() && tensor.dtype() == options.dtype();
  return fits ? tensor : torch::empty(sizes, options);
}

class ResidentSource : public BatchSource {
 public:
  ResidentSource(const ImageSet& set, torch::Device device)
      : images_(set.images.to(device)),
        labels_(set.labels.to(device, torch::kInt64)),
        scale_(torch::full({}, 255.0f).to(device)) {}  // copies from the host are complete for every stream

  int64_t size() const override { return images_.size(0); }

  void gather(std::span<const int64_t> rows, Inputs& into) const override {
    const torch::Tensor index = index_of(rows);
    const auto n = static_cast<int64_t>(rows.size());
    into.X = fitting(into.X, {n, images_.size(1), images_.size(2), images_.size(3)}, scale_.options());
    into.y = fitting(into.y, {n}, labels_.options());
    at::index_select_out(into.y, labels_, 0, index);
    into.X.copy_(images_.index_select(0, index));  // (n, 1, 28, 28) uint8 -> float
    // By a tensor: given the number 255, CUDA multiplies by its reciprocal, which rounds differently.
    into.X.div_(scale_);
  }

 private:
  // The row numbers on the source's device, checked here because a kernel's own check ends a CUDA context.
  torch::Tensor index_of(std::span<const int64_t> rows) const {
    const auto outside =
        std::find_if(rows.begin(), rows.end(), [&](int64_t row) { return row < 0 || row >= size(); });
    if (outside != rows.end()) {
      throw DataError(
          fmt::format("row {} was asked for, the data set has rows 0 to {}", *outside, size() - 1));
    }
    const bool cuda = images_.is_cuda();
    // Pinned, so that the copy need not wait for the stream; torch keeps the memory until the copy is done.
    auto index =
        torch::empty({static_cast<int64_t>(rows.size())}, torch::dtype(torch::kInt64).pinned_memory(cuda));
    std::copy(rows.begin(), rows.end(), index.mutable_data_ptr<int64_t>());
    return index.to(images_.device(), /*non_blocking=*/cuda);
  }

  torch::Tensor images_;  // (size, 1, 28, 28) uint8
  torch::Tensor labels_;  // (size) int64
  torch::Tensor scale_;   // () float, 255
};

}  // namespace

std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device) {
  return std::make_shared<ResidentSource>(set, device);
}

SourceFactory resident_sources(const ImageSet& set) {
  return [set](torch::Device device) { return make_resident_source(set, device); };
}

}  // namespace lockstep
