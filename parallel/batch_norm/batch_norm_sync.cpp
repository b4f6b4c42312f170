#include <lockstep/parallel/batch_norm_sync.h>

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <string>

#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

std::vector<WholeBatchLayer*> whole_batch_layers(torch::nn::Module& module) {
  std::vector<WholeBatchLayer*> layers;
  module.apply([&](const std::string& name, torch::nn::Module& part) {
    if (auto* layer = dynamic_cast<WholeBatchLayer*>(&part)) {
      layers.push_back(layer);
    } else if (is_batch_norm(part)) {
      throw UsageError(
          fmt::format("module {} is torch's own batch normalisation, whose statistics are of each "
                      "replica's rows alone",
                      name.empty() ? "(the model itself)" : name),
          "for statistics of the whole batch (bn sync) use lockstep::BatchNorm1d, 2d or 3d of "
          "<lockstep/models/batch_norm.h>, with the same options and weights");
    }
  });
  return layers;
}

}  // namespace

bool has_whole_batch_norms(torch::nn::Module& module) { return !whole_batch_layers(module).empty(); }

BatchNormSync::BatchNormSync(torch::nn::Module& module, Endpoint& statistics, Trace* trace)
    : exchange_(statistics, trace), layers_(whole_batch_layers(module)) {
  for (auto* layer : layers_) layer->exchange_statistics(&exchange_);
}

BatchNormSync::~BatchNormSync() {
  for (auto* layer : layers_) layer->exchange_statistics(nullptr);
}

torch::Tensor BatchNormSync::Exchange::gather(const torch::Tensor& own) {
  const Trace::Span span(trace_, "wait for statistics", endpoint_.rank());
  return gather_tensors(own, endpoint_);
}

}  // namespace lockstep
