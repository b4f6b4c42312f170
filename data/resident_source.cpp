#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <torch/types.h>

#include <array>

#include <lockstep/data/dataset.h>
#include <lockstep/data/gather_images.h>
#include <lockstep/support/parallel_parts.h>
#include <lockstep/support/stream.h>

namespace lockstep {
namespace {

// `tensor` if a batch can be written into it, else a new one.
torch::Tensor fitting(const torch::Tensor& tensor, at::IntArrayRef sizes,
                      const torch::TensorOptions& options) {
  const bool fits = tensor.defined() && tensor.sizes() == sizes && tensor.is_contiguous() &&
                    tensor.device() == options.device() && tensor.dtype() == options.dtype();
  return fits ? tensor : torch::empty(sizes, options);
}

// What each byte is as a float, rounded as IEEE division is.
constexpr auto kPixels = [] {
  std::array<float, 256> pixels{};
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<float>(i) / 255;
  return pixels;
}();

// images (any number, pixels), rows (n), X (n, pixels). torch would go over the batch three times:
// index_select, a copy as floats, a division.
void gather_on_cpu(const uint8_t* images, const int64_t* rows, int64_t n, int64_t pixels, float* X) {
  parallel_ranges(n, at::get_num_threads(), [&](int64_t first, int64_t last, int64_t) {
    for (int64_t i = first; i < last; ++i) {
      const uint8_t* image = images + rows[i] * pixels;
      for (int64_t p = 0; p < pixels; ++p) X[i * pixels + p] = kPixels[image[p]];
    }
  });
}

class ResidentSource : public BatchSource {
 public:
  ResidentSource(const ImageSet& set, torch::Device device)
      : images_(set.images.to(device)),
        labels_(set.labels.to(device, torch::kInt64)) {
  }  // copies from the host are complete for every stream

  int64_t size() const override { return images_.size(0); }

  void gather(const torch::Tensor& rows, Inputs& into) const override {
    const auto n = rows.numel();
    into.X = fitting(into.X, {n, images_.size(1), images_.size(2), images_.size(3)},
                     images_.options().dtype(torch::kFloat32));
    into.y = fitting(into.y, {n}, labels_.options());
    if (images_.is_cuda()) {  // one kernel
      const c10::DeviceGuard guard(images_.device());
      gather_images(images_.const_data_ptr<uint8_t>(), labels_.const_data_ptr<int64_t>(),
                    rows.const_data_ptr<int64_t>(), n, images_[0].numel(), into.X.mutable_data_ptr<float>(),
                    into.y.mutable_data_ptr<int64_t>(), native_stream(images_.device()));
      return;
    }
    at::index_select_out(into.y, labels_, 0, rows);  // which checks the rows
    gather_on_cpu(images_.const_data_ptr<uint8_t>(), rows.const_data_ptr<int64_t>(), n, images_.stride(0),
                  into.X.mutable_data_ptr<float>());
  }

 private:
  torch::Tensor images_;  // (size, 1, 28, 28) uint8
  torch::Tensor labels_;  // (size) int64
};

}  // namespace

std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device) {
  return std::make_shared<ResidentSource>(set, device);
}

SourceFactory resident_sources(const ImageSet& set) {
  return [set](torch::Device device) { return make_resident_source(set, device); };
}

}  // namespace lockstep
