// Numbers and weights for the programs of users that tests write: the same whenever they are asked for, in
// any thread.
#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <memory>

#include <lockstep/parallel/replica_random.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep::testing {

// In [0, 1), in double.
inline torch::Tensor random_numbers(torch::IntArrayRef sizes, uint64_t seed = 1) {
  return torch::rand(sizes, replica_generator(seed, 0, 0), torch::kFloat64);
}

// Draws all weights of a module; those of norms are left at 1 and 0.
template <class Net>
void draw_weights(Net& net) {
  const torch::NoGradGuard no_grad;
  const auto generator = replica_generator(5, 0, 0);
  for (auto& [name, tensor] : distinct_parameters(net)) {
    if (name.find("norm") == name.npos) tensor.normal_(0, .3, generator);
  }
}

// In double, as are the loops of these tests.
template <class Net>
std::shared_ptr<Net> drawn_net() {
  auto net = std::make_shared<Net>();
  draw_weights(*net);
  net->to(torch::kFloat64);
  return net;
}

}  // namespace lockstep::testing
