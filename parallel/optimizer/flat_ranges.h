// Where the parameters of an optimizer lie: ranges of flat memory, each of one group.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/gradients/bucket_parts.h>
#include <lockstep/parallel/optimizer/optimizer_options.h>
#include <lockstep/parallel/optimizer/part_buffer.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Parameters of one group that lie side by side in this rank's part of a bucket, with the gaps behind them.
// The first and the last one may be cut by the part's bounds. Two ranges need not lie in one allocation.
struct FlatRange {
  torch::Tensor params;          // (n) of one floating-point dtype
  torch::Tensor grads;           // (n) of the same dtype
  torch::Tensor bf16;            // (n) bfloat16, which each step writes; undefined: not wanted
  size_t first = 0;              // number of its first parameter, in the order of registration
  std::vector<int64_t> offsets;  // where each of its parameters begins; the last one lies first, or before it
  GroupOptions group;            // weight_decay is set
  size_t bucket = 0;
  FlatPart place = {};  // in the flat order

  // Before an update. scale: () on the device; undefined: 1.
  void scale_gradients(const torch::Tensor& scale) const;

  // After it: the gradients are zeros, and bf16 has the new parameters.
  void end_update() const;
};

// All that an optimizer updates.
struct TrainedParameters {
  std::shared_ptr<const FlatOrder> order;
  std::vector<GroupOptions> groups;  // of each parameter
  std::vector<FlatRange> ranges;     // of what this rank owns: by bucket, then in the order of registration
  // Called in a step when the ranges of a bucket have been updated, for each bucket in order; may be empty.
  std::function<void(size_t bucket)> updated = nullptr;
};

// The memory of all parameters.
struct FlatBuffers {
  torch::Tensor params;              // (n) with the layout of flat_layout()
  std::vector<torch::Tensor> grads;  // this rank's part of each bucket
  torch::Tensor bf16;                // as params; may be undefined
};

// Returns the options of each parameter, all with a weight decay. Throws UsageError with the parameter's name
// for a number that is negative or not finite.
std::vector<GroupOptions> groups_of(const OptimizerOptions& options, const std::vector<std::string>& names,
                                    const Params& params);

// Returns the ranges of the buffers that this rank owns: as few as the groups allow. groups: of each
// parameter.
std::vector<FlatRange> flat_ranges(const FlatOrder& order, std::span<const GroupOptions> groups,
                                   const FlatBuffers& buffers);

}  // namespace lockstep
