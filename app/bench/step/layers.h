// Times a network's layers one by one on CPUs, and the peak of the cores' arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

struct LayerTime {
  std::string name;
  int64_t count = 0;                 // number of layers with this shape
  double forward = 0, backward = 0;  // seconds of one layer with a replica's rows
  double operations_per_second = 0;  // of all replicas together; 0 for layers without matrix products
};

// Times every layer in all replicas at once (medians), with the rows, threads and precision of a step. Asks
// stop() between two layers and ends when it returns true. In bfloat16 torch's layers convert their weights
// in each pass; in a step bf16 weights are kept. All devices of the plan must be CPUs.
std::vector<LayerTime> time_layers(const TrainPlan& plan, const std::function<bool()>& stop);

// Floating-point operations per second of all replicas' threads together, computing in registers alone
// (RegisterLoop) in the precision of the plan's layers: the best of several repetitions. Empty for fp64, and
// for bf16 if lockstep's kernels have no bf16 matrix products on this CPU.
std::optional<double> register_peak(const TrainPlan& plan);

}  // namespace lockstep
