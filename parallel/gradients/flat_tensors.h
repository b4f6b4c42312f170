// Many tensors in one: parameters, gradients or momentum of a replica as views of one flat buffer, so that
// one operation updates them all and one collective reduces a whole bucket.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct FlatTensors {
  torch::Tensor flat;  // (layout.size), zero in the gaps
  Params views;        // into flat, each with the sizes and strides of the tensor it stands for
};

// Number of elements of each.
std::vector<int64_t> numels_of(const Params& tensors);

// A buffer of zeros for tensors shaped like these (channels_last too: strides are kept). Throws UsageError
// when they differ in dtype or device: one flat buffer has one of each.
FlatTensors flat_zeros_like(const Params& tensors, const FlatLayout& layout);

// Moves the values of these parameters into a flat buffer: each becomes a view of it (the same tensor
// objects, so that modules and optimizers that hold them follow).
FlatTensors flatten_parameters(const Params& params, const FlatLayout& layout);

}  // namespace lockstep
