// What differs between the versions of torch that lockstep is built with (2.11 to 2.15), in one place.
#pragma once

#include <torch/csrc/autograd/variable.h>

#include <utility>

namespace lockstep {

// An owner of the node that adds up a parameter's gradient: std::shared_ptr<Node> in 2.11, c10::intrusive_ptr<Node> in
// 2.15.
using GradAccumulator =
    decltype(torch::autograd::impl::grad_accumulator(std::declval<const torch::autograd::Variable&>()));

}  // namespace lockstep
