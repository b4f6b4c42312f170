// The fused batch normalisation by the CPU kernels.
#include <fmt/format.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <lockstep/models/costs.h>
#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/statistics.h>
#include <lockstep/tests/models/layers/batch_norm/batch_norm_cases.h>
#include <lockstep/tests/models/needs_capability.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void check_on_cpu(CpuCapability capability) {
  NEEDS_CAPABILITY(capability);
  // Fewer rows than threads, a prime number of rows, more than are summed in float; more and fewer channels.
  for (const auto& shape :
       {BatchNormShape{2, 16, 1, 1}, {3, 48, 7, 5}, {37, 64, 1, 1}, {5, 512, 4, 4}, {8, 64, 28, 28}}) {
    for (const int threads : {1, 2, 3}) {
      const Threads guard(threads);
      INFO(shape.n << " x " << shape.c << " x " << shape.h << " x " << shape.w << ", " << threads
                   << " threads");
      for (const auto& [of_x, dtype] :
           {std::pair(torch::kFloat32, torch::kFloat32), std::pair(torch::kBFloat16, torch::kBFloat16),
            std::pair(torch::kFloat32, torch::kBFloat16)}) {
        for (const bool residual : {false, true}) {
          auto inputs = batch_norm_inputs(shape, residual, dtype, /*mean=*/residual ? 100 : 0, of_x);
          inputs.capability = capability;
          check_batch_norm(residual ? with_residual_bias(inputs) : inputs, torch::kCPU);
        }
      }
    }
  }
  const Threads guard(3);
  check_hard_channels(torch::kCPU, capability);
}

// How many operations of this name are in the graph of the result.
int nodes_named(const std::string& operation, const torch::Tensor& result) {
  std::set<torch::autograd::Node*> seen;
  const std::function<int(torch::autograd::Node*)> count = [&](torch::autograd::Node* node) {
    if (!node || !seen.insert(node).second) return 0;
    int found = node->name().find(operation) != std::string::npos;
    for (const auto& edge : node->next_edges()) found += count(edge.function.get());
    return found;
  };
  return count(result.grad_fn().get());
}

// The l2 norm of the difference, relative to that of the exact result.
double distance(const torch::Tensor& a, const torch::Tensor& exact) {
  return ((a.detach().to(torch::kFloat64) - exact.detach()).norm() / exact.detach().norm()).item<double>();
}

// Runs body() under autocast to bfloat16 on CPUs.
template <class Body>
torch::Tensor under_autocast(const Body& body) {
  const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
  return body();
}

// Distance from double of the logits of ResNet-18 and of the gradient of a parameter, the worst one: l2 norms
// of the difference, relative to the exact result.
struct ResNet18Distance {
  double logits = 0, gradient = 0;
};

struct ResNet18Distances {
  ResNet18Distance lockstep, torch;
};

ResNet18Distances distances_from_double(Initialization initialization, uint64_t seed, bool autocast) {
  torch::manual_seed(1);
  const auto X = torch::rand({16, 1, 28, 28});
  const auto network = [&](Kernels kernels, torch::ScalarType dtype) {
    return ResNet18(
        ResNet18Options{.seed = seed, .dtype = dtype, .initialization = initialization, .kernels = kernels});
  };
  auto exact = network(Kernels::kTorch, torch::kFloat64);
  const auto exact_logits = exact->forward(X.to(torch::kFloat64));
  exact_logits.sum().backward();
  const auto expected = exact->named_parameters();
  const auto distances = [&](Kernels kernels) {
    auto net = network(kernels, torch::kFloat32);
    const auto forward = [&] { return net->forward(X); };
    const auto logits = autocast ? under_autocast(forward) : forward();
    const bool by_lockstep = kernels == Kernels::kAuto && (!autocast || fast_bf16_kernels());
    CHECK(nodes_named("Conv3x3Function", logits) == (by_lockstep ? 13 : 0));
    CHECK(logits.scalar_type() == (autocast ? torch::kBFloat16 : torch::kFloat32));
    logits.sum().backward();
    ResNet18Distance result{.logits = distance(logits, exact_logits)};
    const auto params = net->parameters();
    for (size_t i = 0; i < expected.size(); ++i) {
      if (before_batch_norm(expected[i].key())) continue;
      result.gradient = std::max(result.gradient, distance(params[i].grad(), expected[i].value().grad()));
    }
    return result;
  };
  return {.lockstep = distances(Kernels::kAuto), .torch = distances(Kernels::kTorch)};
}

// Compares medians over the seeds 3, 4, ...: one output of a ReLU that rounding moves to the other side of 0
// outweighs all other errors, and happens with any kernels.
void check_no_further_from_double(Initialization initialization, uint64_t seeds, bool autocast) {
  std::vector<double> logits, gradients;  // lockstep's distance divided by torch's
  std::string all;
  for (uint64_t seed = 3; seed < 3 + seeds; ++seed) {
    const auto [by_lockstep, by_torch] = distances_from_double(initialization, seed, autocast);
    logits.push_back(by_lockstep.logits / by_torch.logits);
    gradients.push_back(by_lockstep.gradient / by_torch.gradient);
    all += fmt::format("seed {}: logits {:.2g}, torch's {:.2g}; worst gradient {:.2g}, torch's {:.2g}\n",
                       seed, by_lockstep.logits, by_torch.logits, by_lockstep.gradient, by_torch.gradient);
  }
  INFO(all);
  CHECK(median(logits) <= 1);
  CHECK(median(gradients) <= 1);
}

}  // namespace

TEST_CASE("batch normalisation, addition and ReLU on a CPU: AVX-512") {
  check_on_cpu(CpuCapability::kAvx512);
}
TEST_CASE("batch normalisation, addition and ReLU on a CPU: AVX2") { check_on_cpu(CpuCapability::kAvx2); }
TEST_CASE("batch normalisation, addition and ReLU on a CPU: any CPU") {
  check_on_cpu(CpuCapability::kPortable);
}

TEST_CASE("batch normalisation on a CPU takes other memory formats, and has the same bits in every run") {
  check_layouts(torch::kCPU);
  check_repeatable(torch::kCPU);
}

TEST_CASE("on a CPU fused batch normalisation is for float, bfloat16 and multiples of 16 channels") {
  CHECK(fused_batch_norm_available(torch::kCPU, torch::kFloat32, 48));
  CHECK(fused_batch_norm_available(torch::kCPU, torch::kBFloat16, 48));
  CHECK_FALSE(fused_batch_norm_available(torch::kCPU, torch::kFloat32, 8));
  CHECK_FALSE(fused_batch_norm_available(torch::kCPU, torch::kFloat64, 48));
}

TEST_CASE("ResNet-18 trains with lockstep's CPU kernels as with torch's layers") {
  check_fused_resnet18(torch::kCPU, /*width=*/16);
}

TEST_CASE("lockstep's CPU kernels compute these layers of ResNet-18") {
  // The last two stages have 64 and 128 channels, each with three convolutions of stride 1 that keep the
  // number of channels.
  const auto count = [](Kernels kernels, const char* operation) {
    auto net = small_resnet18(kernels, torch::kCPU, torch::kFloat32, /*width=*/16);
    return nodes_named(operation, net->forward(torch::rand({2, 1, 20, 20})));
  };
  CHECK(count(Kernels::kAuto, "Conv3x3Function") == 6);
  CHECK(count(Kernels::kDirect, "Conv3x3Function") == 0);
  CHECK(count(Kernels::kTorch, "Conv3x3Function") == 0);
  CHECK(count(Kernels::kAuto, "BatchNormRelu") == 17);
  CHECK(count(Kernels::kDirect, "BatchNormRelu") == 17);
  CHECK(count(Kernels::kTorch, "BatchNormRelu") == 0);
}

TEST_CASE("ResNet-18 by lockstep's kernels in fp32 is no further from double than by torch's",
          "[cpu][slow]") {
  check_no_further_from_double(Initialization::kNormal, /*seeds=*/3, /*autocast=*/false);
  check_no_further_from_double(Initialization::kTorch, /*seeds=*/3, /*autocast=*/false);
}

TEST_CASE(
    "ResNet-18 by lockstep's kernels in bfloat16 is no further from double than by torch's under autocast",
    "[cpu][slow]") {
  NEEDS_CAPABILITY(CpuCapability::kAvx512);  // torch's convolutions in bfloat16 take minutes without it
  check_no_further_from_double(Initialization::kNormal, /*seeds=*/3, /*autocast=*/true);
  check_no_further_from_double(Initialization::kTorch, /*seeds=*/9,
                               /*autocast=*/true);  // a tenth closer to double
}

// Here the final linear layer's own rounding is a third to a half of the distance.
TEST_CASE("ResNet-18 evaluates in bfloat16 within 1.5 times autocast's distance from double", "[cpu][slow]") {
  const torch::NoGradGuard no_grad;
  std::vector<double> ratios;
  for (uint64_t seed = 3; seed < 6; ++seed) {
    torch::manual_seed(1);
    const auto X = torch::rand({8, 1, 28, 28});
    const auto network = [&](Kernels kernels, torch::ScalarType dtype) {
      return ResNet18(ResNet18Options{
          .seed = seed, .dtype = dtype, .initialization = Initialization::kTorch, .kernels = kernels});
    };
    auto exact = network(Kernels::kTorch, torch::kFloat64);
    for (int pass = 0; pass < 20; ++pass) exact->forward(X.to(torch::kFloat64));  // for running statistics
    exact->eval();
    const auto expected = exact->forward(X.to(torch::kFloat64));
    const auto distance_by = [&](Kernels kernels) {
      auto net = network(kernels, torch::kFloat32);
      net->eval();
      for (const auto& item : exact->named_buffers()) net->named_buffers()[item.key()].copy_(item.value());
      const auto logits = under_autocast([&] { return net->forward(X); });
      CHECK(logits.scalar_type() == torch::kBFloat16);
      return distance(logits, expected);
    };
    ratios.push_back(distance_by(Kernels::kAuto) / distance_by(Kernels::kTorch));
  }
  CHECK(median(ratios) <= 1.5);
}

TEST_CASE(
    "a batch normalisation in evaluation mode is not fused, the others are, and its float results are "
    "rounded "
    "to bfloat16 for what follows") {
  const auto [frozen, bias] =
      GENERATE(std::pair<std::string, std::string>("1", "0.bias"),
               std::pair<std::string, std::string>("resnet_block1.0.bn2", "resnet_block1.0.conv2.bias"),
               std::pair<std::string, std::string>("resnet_block4.0.bn1", "resnet_block4.0.conv1.bias"));
  INFO(frozen);
  auto net = ResNet18(ResNet18Options{.initialization = Initialization::kTorch});
  const auto X = torch::rand({2, 1, 20, 20});
  const auto before = under_autocast([&] { return net->forward(X); });
  net->named_modules()[frozen]->eval();
  const auto logits = under_autocast([&] { return net->forward(X); });
  CHECK_FALSE(logits.equal(before));
  logits.sum().backward();
  for (const auto& item : net->named_parameters()) {
    INFO(item.key());
    const auto& gradient = item.value().grad();
    // A fused one leaves the bias before it without a gradient.
    REQUIRE(gradient.defined() == (item.key() == bias || !before_batch_norm(item.key())));
    if (gradient.defined()) CHECK(gradient.isfinite().all().item<bool>());
  }
}

TEST_CASE("on a CPU in bfloat16 the sums of a convolution reach its batch normalisation unrounded") {
  const auto kernels = GENERATE(Kernels::kAuto, Kernels::kDirect, Kernels::kTorch);
  // The last two stages have 64 and 128 channels.
  const bool by_lockstep = kernels == Kernels::kAuto && fast_bf16_kernels();
  int64_t unrounded = 0;
  for (const auto& layer : resnet18_layers({.width = 16, .kernels = kernels}, 20, 20)) {
    INFO(layer.name);
    auto sizes = layer.input;
    sizes.insert(sizes.begin(), 2);
    const auto X = torch::rand(sizes);
    const auto y = under_autocast([&] { return layer.forward(X); });
    unrounded += layer.unrounded;
    const bool by_conv3x3 = layer.name.starts_with("3 x 3,") && sizes[1] % 64 == 0;
    const bool kept = layer.first ? kernels != Kernels::kTorch : by_lockstep && by_conv3x3;
    const bool normalised_by_torch = kernels == Kernels::kTorch && layer.name.starts_with("batch norm");
    CHECK(y.scalar_type() == (kept || normalised_by_torch ? torch::kFloat32 : torch::kBFloat16));
    if (layer.first && kept) CHECK(layer.forward(X).equal(y));  // as without autocast
  }
  CHECK(unrounded == (kernels == Kernels::kTorch ? 0 : by_lockstep ? 7 : 1));
}
