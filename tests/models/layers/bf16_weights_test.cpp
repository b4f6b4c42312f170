// A network with bf16 weights against the same network under torch's autocast, which converts the parameters
// itself.
#include <lockstep/tests/catch.h>

#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::vector<torch::Tensor> rounded(const std::vector<torch::Tensor>& params, double factor = 1) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> bf16_weights;
  for (const auto& param : params) bf16_weights.push_back((param * factor).to(torch::kBFloat16));
  return bf16_weights;
}

torch::Tensor batch() {
  return (torch::arange(4 * 16 * 16) * 37).remainder(251).to(torch::kFloat32).div(250).view({4, 1, 16, 16});
}

// Returns the logits, and in training all gradients.
std::vector<torch::Tensor> results(ResNet18& net, bool training) {
  const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
  net->train(training);
  net->zero_grad();
  const auto logits = net->forward(batch());
  std::vector<torch::Tensor> all{logits.detach()};
  if (!training) return all;
  classification_outcome(logits, torch::arange(4)).loss.backward();
  for (const auto& param : net->parameters()) {
    all.push_back(param.grad().defined() ? param.grad() : torch::zeros({}));
    CHECK(all.back().scalar_type() == torch::kFloat32);
    if (param.grad().defined()) CHECK(param.grad().strides() == param.strides());
  }
  return all;
}

bool equal(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const torch::Tensor& one, const torch::Tensor& other) { return one.equal(other); });
}

}  // namespace

TEST_CASE("bf16 weights give the same bits as autocast's conversion, in training and evaluation") {
  const auto kernels = GENERATE(Kernels::kAuto, Kernels::kTorch);
  const bool training = GENERATE(true, false);
  INFO(name_of(kKernelsNames, kernels) << (training ? ", training" : ", evaluation"));
  auto with_bf16_weights = small_resnet18(kernels, torch::kCPU, torch::kFloat32);
  auto with_autocast = small_resnet18(kernels, torch::kCPU, torch::kFloat32);
  with_bf16_weights->use_bf16_weights(rounded(with_bf16_weights->parameters()));
  CHECK(equal(results(with_bf16_weights, training), results(with_autocast, training)));
}

TEST_CASE("a network uses its bf16 weights until they are taken away, and only under autocast") {
  auto net = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat32);
  const auto before = results(net, false);
  const torch::NoGradGuard no_grad;
  const auto without_autocast = net->forward(batch());
  const auto bf16_weights = rounded(net->parameters(), 1.5);
  net->use_bf16_weights(bf16_weights);
  CHECK_FALSE(equal(results(net, false), before));
  CHECK(net->forward(batch()).equal(without_autocast));
  // They are kept, not copied: the network sees what is written into them.
  const auto right = rounded(net->parameters());
  for (size_t i = 0; i < bf16_weights.size(); ++i) bf16_weights[i].detach().copy_(right[i]);
  CHECK(equal(results(net, false), before));
  net->use_bf16_weights(rounded(net->parameters(), 1.5));
  net->use_bf16_weights({});
  CHECK(equal(results(net, false), before));
}

TEST_CASE("the weights and biases of all convolutions and of the linear layer are used as bf16 weights") {
  auto net = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat32);
  const auto before = results(net, false);
  const auto params = net->named_parameters();
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& name = params[i].key();
    auto bf16_weights = rounded(net->parameters());
    bf16_weights[i].fill_(.25);
    net->use_bf16_weights(bf16_weights);
    INFO(name);
    const bool batch_norm = name.starts_with("1.") || name.find("bn") != std::string::npos;
    CHECK(equal(results(net, false), before) == batch_norm);  // it computes in float
  }
}

TEST_CASE("bf16 weights that do not match the parameters are refused") {
  auto net = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat32);
  const auto with = [&](size_t i, const torch::Tensor& bf16) {
    auto bf16_weights = rounded(net->parameters());
    bf16_weights[i] = bf16;
    net->use_bf16_weights(bf16_weights);
  };
  const auto weight = net->parameters()[4];  // of a 3x3 convolution
  REQUIRE(weight.dim() == 4);
  CHECK_THROWS_AS(with(4, weight), UsageError);
  CHECK_THROWS_AS(with(4, weight.to(torch::kBFloat16).contiguous()), UsageError);
  CHECK_THROWS_AS(with(4, weight.to(torch::kBFloat16).slice(0, 1)), UsageError);
  CHECK_THROWS_AS(net->use_bf16_weights({weight.to(torch::kBFloat16)}), UsageError);
}
