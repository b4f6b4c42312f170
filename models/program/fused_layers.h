// Computes convolutions, batch norms and ReLU together, by lockstep's kernels.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/types.h>

#include <vector>

#include <lockstep/models/program/interpreter.h>
#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// Computes those of one run of a graph. The norm's node, or the addition's, computes all that follows the
// convolution; the nodes behind it pass its result on.
class FusedLayers {
 public:
  FusedLayers(const ReadyGraph& graph, const Surroundings& with)
      : graph_(graph), with_(with), runs_(with.kernels == Kernels::kTorch ? 0 : graph.conv_norms.size()) {}

  // Computes a node of ReadyGraph::conv_norms: the stack has its arguments, and then its result. Returns
  // false, and changes nothing, where torch's kernels compute it: on a GPU, in other dtypes than float and
  // bfloat16, without rows, for a norm in evaluation mode, and with Kernels::kTorch.
  bool compute(const ReadyNode& node, const std::vector<c10::IValue>& values,
               std::vector<c10::IValue>& stack);

 private:
  struct Run {
    bool fused = false;
    torch::Tensor conv_bias = {};
    std::vector<c10::IValue> norm = {};  // its arguments, until the addition is computed
  };

  bool chooses(const ConvNormRelu& layers, const std::vector<c10::IValue>& values,
               const torch::Tensor& X) const;
  torch::Tensor convolve(const ConvNormRelu& layers, const std::vector<c10::IValue>& arguments,
                         Run& run) const;
  torch::Tensor norm_relu(const ConvNormRelu& layers, const std::vector<c10::IValue>& norm,
                          const torch::Tensor& residual, const Run& run) const;

  const ReadyGraph& graph_;
  const Surroundings& with_;
  std::vector<Run> runs_;
};

}  // namespace lockstep::program
