// LeNet's two convolutional layers with their ReLUs and poolings, as one torch operation on processors.
#pragma once

#include <torch/types.h>

#include <lockstep/models/cpu/lenet_layers.h>

namespace lockstep {

// Whether the operation takes such images: float or double on a processor, of which nobody wants the
// gradient.
bool lenet_features_take(const torch::Tensor& X);

// avg_pool2d(relu(conv2d(., W2, b2)), 2) of avg_pool2d(relu(conv2d(X, W1, b1)), 2), flattened: X (n, 1, 28,
// 28), W1 (20,1,3,3), b1 (20), W2 (50,20,5,5), b2 (50), all T (float or double), give (n, 800). n may be 0.
//
// Differentiable once, in the four parameters: create_graph is refused. What is frozen costs no products. It
// uses as many threads as torch's operations would, each with images of its own; sums over threads are in a
// fixed order, so that the same number of threads gives the same bits. A second graph may be under way
// meanwhile: all memory is the operation's own; but `layers` must outlive the graph. Throws c10::Error for
// tensors of other shapes and types.
template <class T>
torch::Tensor lenet_features(const torch::Tensor& X, const torch::Tensor& W1, const torch::Tensor& b1,
                             const torch::Tensor& W2, const torch::Tensor& b2, const LeNetLayers<T>& layers);

}  // namespace lockstep
