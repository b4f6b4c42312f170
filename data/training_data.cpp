#include <lockstep/data/training_data.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lockstep/data/fitting.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Gives the rows of another source, one of whose tensors is bytes there and floats here.
class ScaledSource : public BatchSource {
 public:
  ScaledSource(std::shared_ptr<const BatchSource> bytes, size_t scaled)
      : bytes_(std::move(bytes)),
        scaled_(scaled),
        spec_of_bytes_(std::make_shared<const BatchSpec>(bytes_->spec())) {}

  int64_t size() const override { return bytes_->size(); }
  bool can_be_captured() const override { return bytes_->can_be_captured(); }
  std::string settings() const override { return bytes_->settings(); }
  void will_need(std::span<const int64_t> rows, int64_t epoch) const override {
    bytes_->will_need(rows, epoch);
  }

  BatchSpec spec() const override {
    auto spec = *spec_of_bytes_;
    spec[scaled_].dtype = torch::kFloat32;
    return spec;
  }

  void gather(const torch::Tensor& rows, int64_t epoch, Batch& into) const override {
    Batch batch(spec_of_bytes_);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i != scaled_) batch[i] = into[i];
    }
    bytes_->gather(rows, epoch, batch);
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i != scaled_) into[i] = batch[i];
    }
    const auto& pixels = batch[scaled_];
    into[scaled_] = fitting(into[scaled_], pixels.sizes(), pixels.options().dtype(torch::kFloat32));
    into[scaled_].copy_(pixels).div_(255);
  }

 private:
  const std::shared_ptr<const BatchSource> bytes_;
  const size_t scaled_;
  const std::shared_ptr<const BatchSpec> spec_of_bytes_;
};

}  // namespace

int64_t class_count(const TrainingData& data) {
  if (data.classes) return *data.classes;
  throw DataError(fmt::format("{} has no classes: {}", data.name, data.no_classes),
                  "classes are integers from 0 on, one per row, in the one target");
}

TrainingData with_pixels_as_floats(TrainingData data, std::string_view input) {
  const auto found = std::ranges::find(data.spec, input, &TensorSpec::name);
  if (found == data.spec.end()) {
    throw UsageError(fmt::format("{} has no tensor named {}", data.name, input));
  }
  if (found->dtype != torch::kUInt8) return data;
  found->dtype = torch::kFloat32;
  const auto index = static_cast<size_t>(found - data.spec.begin());
  for (auto* rows : {&data.train, &data.test}) {
    rows->sources = [bytes = std::move(rows->sources), index](torch::Device device) {
      return std::make_shared<ScaledSource>(bytes(device), index);
    };
  }
  return data;
}

}  // namespace lockstep
