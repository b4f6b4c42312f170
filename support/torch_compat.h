// The differences between the versions of torch that lockstep can be built with:
//
//                                      2.11                     2.15
//   owner of a gradient's accumulator  std::shared_ptr<Node>    c10::intrusive_ptr<Node>
//   CUDA, NCCL of its packages         13.0, 2.28.9             13.2, 2.30.7
//
// Any nvcc of CUDA 13 compiles for both.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace lockstep {

// Owning pointer to the node that accumulates a parameter's gradient.
using GradAccumulator =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::autograd::Variable&>()));

}  // namespace lockstep
