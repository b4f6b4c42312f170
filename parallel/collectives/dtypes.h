// How collectives treat each dtype: copies move bytes, and sums add what torch can add.
#pragma once

#include <torch/types.h>

namespace lockstep {

// The same memory as (bytes) uint8. tensor: contiguous, of any dtype and shape.
torch::Tensor as_bytes(const torch::Tensor& tensor);

// Returns true if collectives add elements of this dtype: floating-point numbers of 16 bits and more, complex
// numbers, integers, and Bool, whose sum is true where one is.
bool can_be_summed(torch::ScalarType type);

// Returns what a sum adds in place of such elements, in the same memory: a complex number's two real ones,
// and signed integers in place of unsigned ones, since their sums have the same bits and torch and Gloo add
// them.
torch::ScalarType addend_type(torch::ScalarType type);

// A tensor of that type in the same memory. Only integers of 16 bits are copied, to 32: Gloo and NCCL add
// none. Then the sum is to be copied back. tensor: contiguous.
torch::Tensor addends_of(const torch::Tensor& tensor);

}  // namespace lockstep
