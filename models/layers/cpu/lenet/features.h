// LeNet's two convolutional layers with their ReLUs and poolings as one torch operation on CPUs.
#pragma once

#include <torch/types.h>

#include <lockstep/models/layers/cpu/lenet/layers.h>

namespace lockstep {

// Returns true if lenet_features() takes these images: float or double on a CPU, without a gradient.
bool lenet_features_take(const torch::Tensor& X);

// Returns features (n, 800): avg_pool2d(relu(conv2d(h, W2, b2)), 2) flattened, where h is
// avg_pool2d(relu(conv2d(X, W1, b1)), 2). X (n, 1, 28, 28), W1 (20,1,3,3), b1 (20), W2 (50,20,5,5) and b2
// (50) are of type T, float or double. n may be 0.
//
// Differentiable once, in the four parameters; create_graph is refused. Frozen parameters cost no matrix
// products. It uses as many threads as torch's operations, each for its own images; sums over threads are in
// a fixed order, so that the same number of threads gives the same bits. Several graphs may exist at once,
// since each has its own memory; `layers` must outlive them. Throws c10::Error for tensors of other shapes
// and types.
template <class T>
torch::Tensor lenet_features(const torch::Tensor& X, const torch::Tensor& W1, const torch::Tensor& b1,
                             const torch::Tensor& W2, const torch::Tensor& b2, const LeNetLayers<T>& layers);

}  // namespace lockstep
