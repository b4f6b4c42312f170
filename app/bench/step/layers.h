// A network's layers one by one, on processors: how long each takes, and what that is of the fastest that the
// cores can multiply and add.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan.h>

namespace lockstep {

struct LayerTime {
  std::string name;
  int64_t count = 0;                 // layers like this one
  double forward = 0, backward = 0;  // seconds of one of them, with a replica's rows
  double operations_per_second = 0;  // of all replicas together; 0 for layers without products
};

// Medians over some passes of each layer in all replicas at once, with as many rows and threads and in the
// arithmetic that a step has, until stop() says so between two layers. (In bfloat16 torch's layers convert
// their weights in each pass; in a step copies spare them that.) Every device of the plan is a processor.
std::vector<LayerTime> time_layers(const TrainPlan& plan, const std::function<bool()>& stop);

// Floating point operations a second of all replicas' threads together in registers alone (RegisterLoop), in
// the arithmetic of the plan's layers: the best of some turns. None for fp64, and for bf16 where our kernels
// have no products of it.
std::optional<double> register_peak(const TrainPlan& plan);

}  // namespace lockstep
