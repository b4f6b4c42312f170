// A network's layers one by one, for measuring them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

struct ModelLayer {
  std::string name;
  int64_t count = 1;           // layers of this kind and size that the network has
  std::vector<int64_t> input;  // sizes of a row of X
  bool first = false;          // X are the images: nobody wants its gradient
  // Of them, those whose X on a processor is float though the network computes in bfloat16: sums that the
  // convolution before them has not rounded.
  int64_t unrounded = 0;
  // Floating point operations of a row's products, computed directly; 0 for layers that have none.
  int64_t forward_flops = 0, backward_flops = 0;
  // The layer's output for X (n, input...), by the kernels that compute it in the network and with its
  // parameters, to which backward() adds their gradients. Keeps the network alive.
  std::function<torch::Tensor(const torch::Tensor& X)> forward;
};

}  // namespace lockstep
