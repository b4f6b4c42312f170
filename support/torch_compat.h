// The differences between the versions of torch that lockstep can be built with, and where they matter:
//
//                                      2.11              2.15
//   owner of a gradient's accumulator  shared_ptr<Node>  intrusive_ptr<Node>     here
//   CUDA, NCCL of its packages         13.0, 2.28.9      13.2, 2.30.7
//   generator of captured graphs       no lock           a lock                  step_graph_cuda.cpp
//   pool after a failed capture        open              closed                  step_graph_cuda.cpp
//   generator after a failed capture   in capture mode   tidied up               step_graph_cuda.cpp
//   c10d's notes of first collectives  no lock           a lock                  gloo_channel.h
//   c10d's all-to-all                  alltoall_base     also all_to_all_single  gloo_channel.cpp
//   name of Gloo's reading thread      the program's     gloo_tcp_loop
//   oneDNN on AVX2                     whole             writes past a gradient  docs/building.md
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
