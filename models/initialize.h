// How a network's weights start, and random numbers that disturb nobody else's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <mutex>
#include <string_view>

namespace torch::nn {
class Module;
}

namespace lockstep {

// The starts of the chapters' recipes. Batch normalisation starts with weight 1 and bias 0 in all of them.
enum class Initialization {
  // The PyTorch tabs: weights of convolutions and linear layers N(0, .01), where .01 is the standard
  // deviation; biases stay as torch draws them, uniform in +-1 / sqrt(fan in).
  kNormal,
  // The Gluon tab: the same weights, biases zero.
  kNormalZeroBias,
  // The Fleet document, which leaves Paddle's defaults: convolutions N(0, sqrt(2 / (k k c_in))), linear
  // layers
  // uniform in +-sqrt(6 / (in + out)) (Xavier), biases zero. Sources: Paddle's python/paddle/nn/layer/conv.py
  // (_get_default_param_initializer of Conv2D: std = (2 / filter_elem_num)^.5, filter_elem_num = kernel
  // elements x input channels; a bias without initializer is zero), its documentation of paddle.nn.Linear
  // (Xavier weights, zero bias) and of XavierInitializer (uniform unless told otherwise).
  kPaddle,
  // What torch draws when the layers are constructed: weights and biases uniform in +-1 / sqrt(fan in).
  kTorch,
};

// "normal", "normal-zero-bias", "paddle", "torch"
std::string_view initialization_name(Initialization how);

// Redraws the convolutions and linear layers below `net`, in the order in which they were registered, from
// torch's process-wide CPU generator, as Python's net.apply(init_weights) does. The layers come fresh from
// their constructors: on the host, float32, contiguous.
void initialize(torch::nn::Module& net, Initialization how);

// While one lives, torch's process-wide CPU generator draws what follows Python's torch.manual_seed(seed);
// afterwards it goes on as if nothing had been drawn. LibTorch's layers draw from that generator when they
// are constructed and cannot be given another. Threads take turns: a second SeededGenerator waits for the end
// of the first (and for ever if its own thread holds that one). A thread that draws from the generator
// without one shifts the numbers of both.
class SeededGenerator {
 public:
  explicit SeededGenerator(uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  std::unique_lock<std::mutex> turn_;
  torch::Tensor state_;
};

}  // namespace lockstep
