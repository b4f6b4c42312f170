#include <lockstep/app/bench/partition/scheme.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <lockstep/app/bench/allocation_meter.h>
#include <lockstep/parallel/get_params.h>
#include <lockstep/parallel/optimizer/sgd.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

class OneDevice : public PartitionWay {
 public:
  OneDevice(Mesh& mesh, const PartitionTask& task)
      : PartitionWay(mesh),
        layers_(task.network.layers),
        X_(rows_for(task.batch.X, mesh.device(0))),
        y_(task.batch.y.to(mesh.device(0))),
        params_(get_params(task.params, mesh.device(0))) {}

  void forward(int rank) override {
    if (rank == 0) loss_ = mean_loss(run_layers(layers_, X_, params_), y_, y_.size(0));
  }

  void backward(int rank) override {
    if (rank != 0) return;
    loss_.backward();
    loss_.reset();
  }

  const Params& parameters(int rank) const override { return rank == 0 ? params_ : none_; }

  std::vector<Params> gradients() const override {
    Params gradients;
    for (const auto& param : params_) gradients.push_back(param.grad().cpu().clone());
    return {gradients};
  }

 private:
  const std::vector<Layer> layers_;
  const torch::Tensor X_, y_;
  const Params params_;
  const Params none_;
  torch::Tensor loss_;
};

// In every device's thread, with each device's end of what the others wait for.
void run_phases(Mesh& mesh, PartitionWay& way, const std::function<void(int rank)>& phases) {
  mesh.run([&](int rank) {
    try {
      phases(rank);
    } catch (...) {
      way.abort(std::current_exception());
      throw;
    }
  });
}

}  // namespace

std::unique_ptr<PartitionWay> one_device(Mesh& mesh, const PartitionTask& task) {
  return std::make_unique<OneDevice>(mesh, task);
}

// The gradients are of the mean loss already: nothing is left to divide by.
void take_step(Mesh& mesh, PartitionWay& way, double lr) {
  run_phases(mesh, way, [&](int rank) {
    way.forward(rank);
    way.backward(rank);
    sgd(way.parameters(rank), lr, /*batch_size=*/1);
  });
}

std::vector<Params> step_gradients(Mesh& mesh, PartitionWay& way) {
  run_phases(mesh, way, [&](int rank) {
    way.forward(rank);
    way.backward(rank);
  });
  mesh.synchronize();
  const auto gradients = way.gradients();
  run_phases(mesh, way, [&](int rank) { sgd(way.parameters(rank), /*lr=*/0, /*batch_size=*/1); });
  return gradients;
}

StepCost cost_of_step(Mesh& mesh, PartitionWay& way, double lr) {
  std::vector<int64_t> activations(static_cast<size_t>(mesh.size()));
  mesh.take_traffic();
  run_phases(mesh, way, [&](int rank) {
    {
      const AllocationMeter meter;
      way.forward(rank);
      activations[static_cast<size_t>(rank)] = meter.live_bytes();
    }
    way.backward(rank);
    sgd(way.parameters(rank), lr, /*batch_size=*/1);
  });
  StepCost cost{.traffic = mesh.take_traffic()};
  cost.activation_bytes = *std::max_element(activations.begin(), activations.end());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    int64_t bytes = 0;
    for (const auto& param : way.parameters(rank)) bytes += static_cast<int64_t>(param.nbytes());
    cost.parameter_bytes = std::max(cost.parameter_bytes, bytes);
  }
  return cost;
}

Difference difference(const Params& gradients, const Params& expected) {
  if (gradients.size() != expected.size()) {
    throw UsageError(fmt::format("{} gradients are compared with {}", gradients.size(), expected.size()));
  }
  Difference result;
  for (size_t i = 0; i < expected.size(); ++i) {
    if (gradients[i].sizes() != expected[i].sizes()) {
      throw UsageError(fmt::format("gradient {} has {} elements, {} are expected", i, gradients[i].numel(),
                                   expected[i].numel()));
    }
    const auto apart = (gradients[i] - expected[i]).abs().max().item<double>();
    const auto largest = expected[i].abs().max().item<double>();
    result.largest = std::max(result.largest, largest);
    // A gradient of zeros has to be met exactly. Written so that what is not a number counts as apart.
    const double relative = apart == 0 ? 0 : apart / largest;
    if (!std::isnan(result.relative) && !(relative <= result.relative)) result.relative = relative;
  }
  return result;
}

torch::Tensor rows_for(const torch::Tensor& X, torch::Device device) {
  if (!device.is_cpu()) return X.to(device);
  return torch::empty(X.sizes(), X.options().device(device), torch::MemoryFormat::ChannelsLast).copy_(X);
}

}  // namespace lockstep
