// Many tensors as views of one flat buffer: a replica's parameters, gradients or momentum. One operation
// updates them all, and one collective reduces a whole bucket. All buffers of tensors of the same sizes have
// the same layout, that of flat_layout() (buckets.h).
//
// The buffer holds real numbers. A complex element takes two of them, its real and imaginary part, so real
// and complex parameters share one buffer: torch's sums, norms and optimizers treat those parts as two
// numbers, too.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>
#include <vector>

#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct FlatTensors {
  torch::Tensor flat;  // (flat_layout().size) of real numbers, zero in the gaps
  Params views;        // of flat, each with the sizes, strides and dtype of its original tensor
};

// Returns how many real numbers each tensor has.
std::vector<int64_t> numels_of(const Params& tensors);

// Returns a buffer of zeros with views like these tensors: at least one, all of one dtype, or complex numbers
// of it, and on one device. Strides are kept, as those of channels_last.
FlatTensors flat_zeros_like(const Params& tensors);

// Returns views of another buffer of that layout, which begins its storage.
Params views_of(const torch::Tensor& flat, const Params& tensors);

// Returns views of the memory of one bucket, (n) with the bucket's part of that layout: of its tensors, in
// the order of registration. tensors: of all buckets.
Params views_of_bucket(const torch::Tensor& memory, const Params& tensors, const Bucket& bucket);

// Returns options for the real numbers of such a tensor.
torch::TensorOptions options_of_reals(const torch::Tensor& tensor);

// Returns views of the gaps of such a buffer, without empty ones. numels: of its tensors.
std::vector<torch::Tensor> gaps_of(const torch::Tensor& flat, std::span<const int64_t> numels);

// Returns the tensor's elements in the order of its memory, contiguous (n). Shares the memory if that has no
// gaps, otherwise it is a copy.
torch::Tensor in_memory_order(const torch::Tensor& tensor);

// Writes tensors into views of a flat buffer of real numbers, one each: zeros for an undefined one. The
// views are dense; the tensors may be sparse. All are on one device, and may differ in dtype. On a GPU one
// kernel writes up to 96 tensors.
void fill_views(std::span<const torch::Tensor> views, std::span<const torch::Tensor> tensors);

// Moves the values of these parameters into a flat buffer. Each parameter becomes a view of it and stays the
// same tensor object, so that modules and optimizers that hold it follow.
FlatTensors flatten_parameters(const Params& params);

}  // namespace lockstep
