// How a network's weights start, and seeded draws that leave torch's generator as it was.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <mutex>

#include <lockstep/support/choices.h>

namespace torch::nn {
class Module;
}

namespace lockstep {

// The initializations of the chapters' recipes. In all of them batch normalisation has weight 1 and bias 0.
enum class Initialization {
  // The PyTorch tabs: weights of convolutions and linear layers are N(0, .01), where .01 is the standard
  // deviation. Biases are as torch draws them, uniform in +-1 / sqrt(fan in).
  kNormal,
  // The Gluon tab: the same weights, biases zero.
  kNormalZeroBias,
  // The Fleet document, which keeps Paddle's defaults: convolutions are N(0, sqrt(2 / (k k c_in))), linear
  // layers uniform in +-sqrt(6 / (in + out)) (Xavier), biases zero. Sources: Paddle's
  // python/paddle/nn/layer/conv.py (_get_default_param_initializer of Conv2D: std = (2 / filter_elem_num)^.5,
  // filter_elem_num = kernel elements x input channels; a bias without initializer is zero), and the
  // documentation of paddle.nn.Linear (Xavier weights, zero bias) and XavierInitializer (uniform by default).
  kPaddle,
  // As torch draws them when it constructs the layers: weights and biases uniform in +-1 / sqrt(fan in).
  kTorch,
};

inline constexpr Choice<Initialization> kInitializationNames[] = {
    {"normal", Initialization::kNormal},
    {"normal-zero-bias", Initialization::kNormalZeroBias},
    {"paddle", Initialization::kPaddle},
    {"torch", Initialization::kTorch}};

// Draws the weights of the convolutions and linear layers below `net` again, in the order of their
// registration, from torch's process-wide CPU generator, as Python's net.apply(init_weights) does. The layers
// must be as constructed: on the host, float32, contiguous.
void initialize(torch::nn::Module& net, Initialization how);

// While one of these exists, torch's process-wide CPU generator draws the numbers that follow Python's
// torch.manual_seed(seed). Afterwards it continues as if nothing had been drawn. LibTorch's layers draw from
// that generator when they are constructed and cannot be given another.
//
// Only one exists at a time: the constructor waits until another thread's is destroyed, and for ever if its
// own thread holds one. A thread that draws from the generator without one changes the numbers of both.
class SeededGenerator {
 public:
  explicit SeededGenerator(uint64_t seed);
  ~SeededGenerator();
  SeededGenerator(const SeededGenerator&) = delete;
  SeededGenerator& operator=(const SeededGenerator&) = delete;

 private:
  std::unique_lock<std::mutex> lock_;
  torch::Tensor state_;
};

}  // namespace lockstep
