#include <lockstep/app/bench/partition/scheme.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include <lockstep/app/bench/partition/allocation_meter.h>
#include <lockstep/parallel/chapter/sgd.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// Runs phases(rank) in every device's thread. If one throws, the scheme's waits end on all devices.
void run_phases(Mesh& mesh, PartitionScheme& scheme, const std::function<void(int rank)>& phases) {
  mesh.run([&](int rank) {
    try {
      phases(rank);
    } catch (...) {
      scheme.abort(std::current_exception());
      throw;
    }
  });
}

}  // namespace

Params PartitionScheme::host_gradients(int rank) const {
  Params gradients;
  for (const auto& param : parameters(rank)) gradients.push_back(param.grad().cpu().clone());
  return gradients;
}

// The gradients are those of the mean loss, so batch_size is 1.
void take_step(Mesh& mesh, PartitionScheme& scheme, double lr) {
  run_phases(mesh, scheme, [&](int rank) {
    scheme.forward(rank);
    scheme.backward(rank);
    sgd(scheme.parameters(rank), lr, /*batch_size=*/1);
  });
}

std::vector<Params> step_gradients(Mesh& mesh, PartitionScheme& scheme) {
  run_phases(mesh, scheme, [&](int rank) {
    scheme.forward(rank);
    scheme.backward(rank);
  });
  mesh.synchronize();
  const auto gradients = scheme.gradients();
  run_phases(mesh, scheme, [&](int rank) { sgd(scheme.parameters(rank), /*lr=*/0, /*batch_size=*/1); });
  return gradients;
}

StepCost cost_of_step(Mesh& mesh, PartitionScheme& scheme, double lr) {
  std::vector<int64_t> activations(static_cast<size_t>(mesh.size()));
  mesh.take_traffic();
  run_phases(mesh, scheme, [&](int rank) {
    {
      const AllocationMeter meter;
      scheme.forward(rank);
      activations[static_cast<size_t>(rank)] = meter.live_bytes();
    }
    scheme.backward(rank);
    sgd(scheme.parameters(rank), lr, /*batch_size=*/1);
  });
  StepCost cost{.traffic = mesh.take_traffic()};
  cost.activation_bytes = *std::max_element(activations.begin(), activations.end());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    int64_t bytes = 0;
    for (const auto& param : scheme.parameters(rank)) bytes += static_cast<int64_t>(param.nbytes());
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
    // Zero gradients must match exactly. A NaN counts as different.
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
