// Where the parameters of an optimizer lie: ranges of flat memory, each of one group.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/optimizer_options.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Whole parameters of one group that lie side by side, with the gaps behind them. Two ranges need not lie in
// one allocation.
struct FlatRange {
  torch::Tensor params;          // (n) of one floating-point dtype
  torch::Tensor grads;           // (n) of the same dtype
  torch::Tensor bf16;            // (n) bfloat16, which each step writes; undefined: not wanted
  size_t first = 0;              // number of its first parameter, in the order of registration
  std::vector<int64_t> offsets;  // where each of its parameters begins; the last one lies first
  GroupOptions group;            // weight_decay is set

  // Before an update. scale: () on the device; undefined: 1.
  void scale_gradients(const torch::Tensor& scale) const;

  // After it: the gradients are zeros, and bf16 has the new parameters.
  void end_update() const;
};

// All that an optimizer updates.
struct TrainedParameters {
  Params params;                   // the module's own, in the order of registration
  std::vector<std::string> names;  // of these
  std::vector<FlatRange> ranges;   // with the same order
};

// The flat buffers of all parameters, each (n) with the layout of flat_layout(). bf16 may be undefined.
struct FlatBuffers {
  torch::Tensor params, grads, bf16;
};

// Returns the options of each parameter, all with a weight decay. Throws UsageError with the parameter's name
// for a number that is negative or not finite.
std::vector<GroupOptions> groups_of(const OptimizerOptions& options, const std::vector<std::string>& names,
                                    const Params& params);

// Returns the ranges of the buffers, in the order of registration: as few as the groups allow. groups: of
// each parameter.
std::vector<FlatRange> flat_ranges(const Params& params, std::span<const GroupOptions> groups,
                                   const FlatBuffers& buffers);

}  // namespace lockstep
