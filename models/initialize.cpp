#include <lockstep/models/initialize.h>

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

namespace lockstep {

namespace {

namespace init = torch::nn::init;

// Guards the one generator of the process.
std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

// weight (out, in) or (out, in, k, k), bias (out)
void initialize_layer(const torch::Tensor& weight, const torch::Tensor& bias, Initialization how) {
  if (how != Initialization::kPaddle) {
    init::normal_(weight, 0, .01);
  } else if (weight.dim() == 4) {
    const auto fan_in = static_cast<double>(weight[0].numel());
    init::normal_(weight, 0, std::sqrt(2 / fan_in));
  } else {
    init::xavier_uniform_(weight);
  }
  if (how != Initialization::kNormal) init::zeros_(bias);
}

}  // namespace

void initialize(torch::nn::Module& net, Initialization how) {
  if (how == Initialization::kTorch) return;
  for (const auto& module : net.modules(/*include_self=*/false)) {
    if (const auto* conv = module->as<torch::nn::Conv2dImpl>()) {
      initialize_layer(conv->weight, conv->bias, how);
    } else if (const auto* linear = module->as<torch::nn::LinearImpl>()) {
      initialize_layer(linear->weight, linear->bias, how);
    }
  }
}

SeededGenerator::SeededGenerator(uint64_t seed) : lock_(generator_mutex()) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  state_ = generator.get_state();
  // torch::manual_seed() would seed the devices' generators too.
  generator.set_current_seed(seed);
}

SeededGenerator::~SeededGenerator() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state_);
}

}  // namespace lockstep
