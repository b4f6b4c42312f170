// A network's layers one by one, for benchmarks.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

class LeNetImpl;
struct ModelSpec;
class ResNet18Impl;

struct ModelLayer {
  std::string name;
  int64_t count = 1;           // layers of this kind and size in the network
  std::vector<int64_t> input;  // sizes of a row of X
  bool first = false;          // X is a batch of images and needs no gradient
  // How many of them take float X on a CPU though the network computes in bfloat16: the convolution before
  // them does not round its sums.
  int64_t unrounded = 0;
  // Floating point operations per row, computed directly; 0 for layers other than convolutions and linear
  // ones.
  int64_t forward_flops = 0, backward_flops = 0;
  // Returns the layer's output for X (n, input...), with the network's kernels and parameters; backward()
  // adds to the parameters' gradients. Keeps the network alive.
  std::function<torch::Tensor(const torch::Tensor& X)> forward;
};

// Returns the layers of this network. Requires that a shared_ptr owns it.
std::vector<ModelLayer> layers_of(LeNetImpl& net);

// Returns the layers of this network for images of height x width, each kind once. The additions of the
// shortcuts and the means over the images are left out.
std::vector<ModelLayer> layers_of(const ResNet18Impl& net, int64_t height = 28, int64_t width = 28);

// Returns the layers of such a model for rows of (1, 28, 28), built anew on the host. Throws UsageError for
// an unknown name.
std::vector<ModelLayer> layers_of(const ModelSpec& spec);

}  // namespace lockstep
