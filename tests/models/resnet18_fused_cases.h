// ResNet-18 with the fused batch normalisation against torch's layers, on the CPU (emulated) or a GPU.
#pragma once

#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/models/resnet18.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/support/compare.h>

namespace lockstep::testing {

inline ResNet18 small_resnet18(Kernels kernels, torch::Device device, torch::ScalarType dtype,
                               int64_t width = 8) {
  ResNet18Options options;
  options.width = width;
  options.seed = 4;
  options.initialization = Initialization::kTorch;  // with biases
  options.kernels = kernels;
  ResNet18 net(options);
  net->to(device, dtype);
  return net;
}

inline bool before_batch_norm(const std::string& name) {
  return name == "0.bias" || name.ends_with("conv1.bias") || name.ends_with("conv2.bias");
}

// Runs two steps of gradient descent. Returns by name the logits and losses of both, the gradients of the
// second, and the parameters and buffers after it.
inline std::vector<NamedTensor> two_steps(ResNet18& net, torch::Device device, torch::ScalarType dtype) {
  std::vector<NamedTensor> results;
  for (int step = 0; step < 2; ++step) {
    const auto i = torch::arange(6 * 20 * 20, torch::kFloat64);
    const auto X = ((i * (37 + step)).remainder(251) / 250).view({6, 1, 20, 20}).to(device, dtype);
    const auto y = torch::arange(6).mul(3).remainder(10).to(device);
    net->zero_grad();
    const auto logits = net->forward(X);
    const auto loss = classification_outcome(logits, y).loss / 6;
    loss.backward();
    results.push_back({"logits " + std::to_string(step), logits.detach().cpu()});
    results.push_back({"loss " + std::to_string(step), loss.detach().cpu()});
    const torch::NoGradGuard no_grad;
    for (const auto& item : net->named_parameters()) {
      if (before_batch_norm(item.key())) continue;
      if (step == 1) results.push_back({"gradient of " + item.key(), item.value().grad().cpu().clone()});
      auto param = item.value();
      param.sub_(param.grad(), .05);
    }
  }
  for (const auto& item : net->named_parameters())
    results.push_back({item.key(), item.value().detach().cpu()});
  for (const auto& item : net->named_buffers()) results.push_back({item.key(), item.value().cpu()});
  return results;
}

// The fused network may be further from the same network in double than torch's layers, but only a few times.
inline void check_fused_resnet18(torch::Device device, int64_t width = 8) {
  auto by_torch = small_resnet18(Kernels::kTorch, device, torch::kFloat32, width);
  auto fused = small_resnet18(Kernels::kAuto, device, torch::kFloat32, width);
  auto exact = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat64, width);
  const auto torch_results = two_steps(by_torch, device, torch::kFloat32);
  const auto fused_results = two_steps(fused, device, torch::kFloat32);
  const auto exact_results = two_steps(exact, torch::kCPU, torch::kFloat64);
  REQUIRE(fused_results.size() == exact_results.size());
  bool all_equal = true;
  for (size_t i = 0; i < exact_results.size(); ++i) {
    const auto& [name, expected] = exact_results[i];
    const auto& found = fused_results[i].tensor;
    INFO(name);
    REQUIRE(fused_results[i].name == name);
    all_equal = all_equal && found.equal(torch_results[i].tensor);
    const double torch_error = max_difference(torch_results[i].tensor, expected);
    CHECK(max_difference(found, expected) <= 5 * torch_error + 1e-5 * max_abs(expected));
  }
  CHECK_FALSE(all_equal);  // it was another computation
  for (const auto& item : fused->named_parameters()) {
    INFO(item.key());
    CHECK(item.value().grad().defined() != before_batch_norm(item.key()));
  }

  fused->eval();
  by_torch->eval();
  const torch::NoGradGuard no_grad;
  const auto params = fused->parameters();
  const auto buffers = fused->buffers();
  for (size_t i = 0; i < params.size(); ++i) by_torch->parameters()[i].copy_(params[i]);
  for (size_t i = 0; i < buffers.size(); ++i) by_torch->buffers()[i].copy_(buffers[i]);
  const auto X = torch::rand({3, 1, 28, 28}).to(device);
  const auto expected =
      by_torch->forward(X);  // by torch's batch normalisations in both, its convolutions in one
  CHECK(max_difference(fused->forward(X), expected) <= 1e-5 * max_abs(expected));
}

}  // namespace lockstep::testing
