// LeNet's two linear layers with the ReLU between them as one torch operation on CPUs.
#pragma once

#include <torch/types.h>

#include <lockstep/models/layers/cpu/lenet/layers.h>

namespace lockstep {

// Returns logits (n, 10): relu(features W3 + b3) W4 + b4. features (n, 800), W3 (800,128), b3 (128), W4
// (128,10) and b4 (10) are of type T (float or double) on a CPU. n may be 0.
//
// Differentiable once, in all five; frozen parameters cost no matrix products. For threads, order of sums,
// memory, lifetime of `layers` and errors see lenet_features().
template <class T>
torch::Tensor lenet_head(const torch::Tensor& features, const torch::Tensor& W3, const torch::Tensor& b3,
                         const torch::Tensor& W4, const torch::Tensor& b4, const LeNetLayers<T>& layers);

}  // namespace lockstep
