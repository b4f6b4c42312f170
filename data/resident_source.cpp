#include <c10/core/DeviceGuard.h>
#include <torch/types.h>

#include <lockstep/data/dataset.h>
#include <lockstep/data/fitting.h>
#include <lockstep/data/kernels/gather_images.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep {
namespace {

class ResidentSource : public BatchSource {
 public:
  ResidentSource(const ImageSet& set, torch::Device device)
      : images_(set.images.to(device)),
        labels_(set.labels.to(device, torch::kInt64)) {
  }  // these copies from the host are complete before any stream reads them

  int64_t size() const override { return images_.size(0); }

  BatchSpec spec() const override { return image_spec({images_, labels_}); }

  void gather(const torch::Tensor& rows, int64_t /*epoch*/, Batch& into) const override {
    const auto n = rows.numel();
    auto &images = into[0], &labels = into[1];
    images = fitting(images, {n, images_.size(1), images_.size(2), images_.size(3)},
                     images_.options().dtype(torch::kFloat32));
    labels = fitting(labels, {n}, labels_.options());
    if (images_.is_cuda()) {  // one kernel
      const c10::DeviceGuard guard(images_.device());
      gather_images(images_.const_data_ptr<uint8_t>(), labels_.const_data_ptr<int64_t>(),
                    rows.const_data_ptr<int64_t>(), n, images_[0].numel(), images.mutable_data_ptr<float>(),
                    labels.mutable_data_ptr<int64_t>(), native_stream(images_.device()));
      return;
    }
    at::index_select_out(labels, labels_, 0, rows);
    images.copy_(images_.index_select(0, rows)).div_(255);  // uint8 -> float
  }

 private:
  torch::Tensor images_;  // (size, channels, height, width) uint8
  torch::Tensor labels_;  // (size) int64
};

}  // namespace

BatchSpec image_spec(const ImageSet& set) {
  return {{.name = "images", .dtype = torch::kFloat32, .row_shape = set.images.sizes().slice(1).vec()},
          {.name = "labels", .dtype = torch::kInt64, .role = Role::kTarget}};
}

std::shared_ptr<const BatchSource> make_resident_source(const ImageSet& set, torch::Device device) {
  return std::make_shared<ResidentSource>(set, device);
}

SourceFactory resident_sources(const ImageSet& set) {
  return [set](torch::Device device) { return make_resident_source(set, device); };
}

}  // namespace lockstep
