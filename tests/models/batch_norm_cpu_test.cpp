// The fused batch normalisation by the kernels for processors.
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

#include <lockstep/models/cpu/kernels.h>
#include <lockstep/support/cpu_capability.h>
#include <lockstep/tests/models/batch_norm_cases.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

void check_on_cpu(CpuCapability capability) {
  if (!has_capability(capability)) {
    SKIP_CASE("this processor has no " + std::string(name_of(kCpuCapabilityNames, capability)));
  }
  // Fewer rows than threads, a prime number of them, more than are summed in float; more and fewer channels.
  for (const auto& shape :
       {BatchNormShape{2, 16, 1, 1}, {3, 48, 7, 5}, {37, 64, 1, 1}, {5, 512, 4, 4}, {8, 64, 28, 28}}) {
    for (const int threads : {1, 2, 3}) {
      const Threads guard(threads);
      INFO(shape.n << " x " << shape.c << " x " << shape.h << " x " << shape.w << ", " << threads
                   << " threads");
      for (const auto dtype : {torch::kFloat32, torch::kBFloat16}) {
        for (const bool residual : {false, true}) {
          auto inputs = batch_norm_inputs(shape, residual, dtype, /*mean=*/residual ? 100 : 0);
          inputs.capability = capability;
          check_batch_norm(inputs, torch::kCPU);
        }
      }
    }
  }
  const Threads guard(3);
  check_hard_channels(torch::kCPU, capability);
}

// How many operations of a kind the result's graph has.
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

// Of the results' norm.
double distance(const torch::Tensor& a, const torch::Tensor& exact) {
  return ((a.detach().to(torch::kFloat64) - exact.detach()).norm() / exact.detach().norm()).item<double>();
}

}  // namespace

TEST_CASE("batch normalisation, addition and ReLU on a processor: AVX-512") {
  check_on_cpu(CpuCapability::kAvx512);
}
TEST_CASE("batch normalisation, addition and ReLU on a processor: AVX2") {
  check_on_cpu(CpuCapability::kAvx2);
}
TEST_CASE("batch normalisation, addition and ReLU on a processor: any") {
  check_on_cpu(CpuCapability::kPortable);
}

TEST_CASE("batch normalisation on a processor takes other layouts, and has the same bits in every run") {
  check_layouts(torch::kCPU);
  check_repeatable(torch::kCPU);
}

TEST_CASE("on a processor fused batch normalisation is for floats, bfloat16 and multiples of 16 channels") {
  CHECK(fused_batch_norm_available(torch::kCPU, torch::kFloat32, 48));
  CHECK(fused_batch_norm_available(torch::kCPU, torch::kBFloat16, 48));
  CHECK_FALSE(fused_batch_norm_available(torch::kCPU, torch::kFloat32, 8));
  CHECK_FALSE(fused_batch_norm_available(torch::kCPU, torch::kFloat64, 48));
}

TEST_CASE("ResNet-18 trains with our kernels for processors as with torch's layers") {
  check_fused_resnet18(torch::kCPU, /*width=*/16);
}

TEST_CASE("which layers of ResNet-18 on a processor our kernels compute") {
  // 64 and 128 channels in the last two stages, each with three convolutions of stride 1 between as many
  // channels.
  const auto count = [](Kernels kernels, const char* operation) {
    auto net = small_resnet18(kernels, torch::kCPU, torch::kFloat32, /*width=*/16);
    return nodes_named(operation, net->forward(torch::rand({2, 1, 20, 20})));
  };
  CHECK(count(Kernels::kAuto, "Conv3x3Function") == 6);
  CHECK(count(Kernels::kDirect, "Conv3x3Function") == 0);
  CHECK(count(Kernels::kStock, "Conv3x3Function") == 0);
  CHECK(count(Kernels::kAuto, "BatchNormRelu") == 17);
  CHECK(count(Kernels::kDirect, "BatchNormRelu") == 17);
  CHECK(count(Kernels::kStock, "BatchNormRelu") == 0);
}

TEST_CASE("under autocast our kernels for processors compute ResNet-18 in bfloat16") {
  torch::manual_seed(1);
  const auto X = torch::rand({16, 1, 28, 28});
  const auto in_bfloat16 = [&](ResNet18& net) {
    at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    const auto logits = net->forward(X);
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    return logits;
  };
  // From the chapters' initial weights. Where activations are of the size of 1 from the start, what is
  // multiplied in tiles is rounded a little more than what torch multiplies (see conv3x3_test.cpp).
  const auto from_chapters = [](Kernels kernels, torch::ScalarType dtype) {
    return ResNet18(ResNet18Options{.seed = 4, .dtype = dtype, .kernels = kernels});
  };
  auto own = from_chapters(Kernels::kAuto, torch::kFloat32);
  auto stock = from_chapters(Kernels::kStock, torch::kFloat32);
  auto exact = from_chapters(Kernels::kStock, torch::kFloat64);
  const auto own_logits = in_bfloat16(own), stock_logits = in_bfloat16(stock);
  CHECK(own_logits.scalar_type() == torch::kBFloat16);
  CHECK(nodes_named("Conv3x3Function", own_logits) == (fast_bf16_kernels() ? 13 : 0));
  const auto exact_logits = exact->forward(X.to(torch::kFloat64));
  // No further from double than autocast's own layers, in the logits and in the gradients of all parameters
  // together.
  CHECK(distance(own_logits, exact_logits) <= distance(stock_logits, exact_logits));
  for (const auto& logits : {own_logits, stock_logits, exact_logits}) logits.sum().backward();
  double of_own = 0, of_stock = 0;
  const auto of_exact = exact->named_parameters();
  const auto own_params = own->parameters(), stock_params = stock->parameters();
  for (size_t i = 0; i < of_exact.size(); ++i) {
    if (before_batch_norm(of_exact[i].key())) continue;
    const auto& expected = of_exact[i].value().grad();
    of_own = std::max(of_own, distance(own_params[i].grad(), expected));
    of_stock = std::max(of_stock, distance(stock_params[i].grad(), expected));
  }
  INFO("own " << of_own << ", torch's " << of_stock);
  CHECK(of_own <= of_stock);
}
