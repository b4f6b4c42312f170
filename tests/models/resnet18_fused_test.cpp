// With the CUDA kernels, emulated: batch_norm_emulated.cpp.
#include <ATen/record_function.h>

#include <atomic>
#include <string_view>

#include <lockstep/models/factory.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("ResNet-18 trains with fused kernels as with torch's layers") { check_fused_resnet18(torch::kCPU); }

TEST_CASE("names, order and memory of parameters and buffers do not depend on the kernels") {
  auto by_torch = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat32);
  auto fused = small_resnet18(Kernels::kAuto, torch::kCPU, torch::kFloat32);
  const auto check = [](const auto& fused_tensors, const auto& torch_tensors) {
    REQUIRE(fused_tensors.size() == torch_tensors.size());
    for (size_t i = 0; i < fused_tensors.size(); ++i) {
      CHECK(fused_tensors[i].key() == torch_tensors[i].key());
      CHECK(fused_tensors[i].value().equal(torch_tensors[i].value()));
      CHECK(fused_tensors[i].value().strides() == torch_tensors[i].value().strides());
    }
  };
  check(fused->named_parameters(), by_torch->named_parameters());
  check(fused->named_buffers(), by_torch->named_buffers());
}

TEST_CASE("torch computes other types, and networks without batch normalisation are close to torch's") {
  auto fused = small_resnet18(Kernels::kAuto, torch::kCPU, torch::kFloat64);
  auto by_torch = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat64);
  const auto X = torch::rand({2, 1, 28, 28}, torch::kFloat64);
  CHECK(fused->forward(X).equal(by_torch->forward(X)));
  ResNet18Options options;
  options.width = 8;
  options.batch_norm = false;
  ResNet18 plain(options);
  options.kernels = Kernels::kTorch;
  ResNet18 plain_by_torch(options);
  const auto expected = plain_by_torch->forward(X.to(torch::kFloat32));
  CHECK(max_difference(plain->forward(X.to(torch::kFloat32)), expected) <= 1e-5 * max_abs(expected));
}

TEST_CASE(
    "the biases before a batch normalisation take part in gradient synchronisation, with gradients of zero") {
  auto fused = small_resnet18(Kernels::kAuto, torch::kCPU, torch::kFloat32);
  const auto communicator = make_communicator({.devices = {torch::kCPU}});
  GradientSync sync(communicator->endpoint(0));
  sync.attach(*fused);
  sync.flat_gradients().fill_(1);  // as after another step
  for (const auto& param : fused->parameters()) param.mutable_grad() = torch::Tensor();
  fused->forward(torch::rand({4, 1, 14, 14})).square().sum().backward();
  sync.wait();  // waits for every parameter
  int biases = 0;
  for (const auto& item : fused->named_parameters()) {
    INFO(item.key());
    const bool zero = item.value().grad().count_nonzero().item<int64_t>() == 0;
    CHECK(zero == before_batch_norm(item.key()));
    biases += before_batch_norm(item.key());
  }
  CHECK(biases == 17);
}

TEST_CASE("the bias of a shortcut has the gradient of the batch normalisation that it is added to") {
  auto net = small_resnet18(Kernels::kDirect, torch::kCPU, torch::kFloat32);
  net->forward(torch::rand({4, 1, 14, 14})).square().sum().backward();
  const auto params = net->named_parameters();
  for (const std::string block : {"resnet_block2.0.", "resnet_block3.0.", "resnet_block4.0."}) {
    INFO(block);
    const auto gradient = params[block + "conv3.bias"].grad();
    CHECK(gradient.equal(params[block + "bn2.bias"].grad()));
    CHECK(gradient.count_nonzero().item<int64_t>() > 0);
  }
}

// How many additions of tensors the backward pass of a network calls.
int additions_in_backward(Kernels kernels) {
  auto net = small_resnet18(kernels, torch::kCPU, torch::kFloat32);
  const auto loss = net->forward(torch::rand({4, 1, 14, 14})).square().sum();
  static std::atomic<int> additions;
  additions = 0;
  const auto count = [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
    additions += std::string_view(function.name()).starts_with("aten::add");
    return nullptr;
  };
  const auto handle =
      at::addGlobalCallback(at::RecordFunctionCallback(count, nullptr).scopes({at::RecordScope::FUNCTION}));
  loss.backward();
  at::removeCallback(handle);
  return additions;
}

TEST_CASE("the gradients that meet before a residual block are added by the batch normalisation there") {
  CHECK(additions_in_backward(Kernels::kTorch) == 8);  // one for each block
  CHECK(additions_in_backward(Kernels::kDirect) == 0);
}

TEST_CASE("the factory passes the kernels on") {
  const Batch rows{(torch::arange(2 * 14 * 14).view({2, 1, 14, 14}) / 392.).to(torch::kFloat32),
                   torch::arange(2)};
  for (const auto kernels : {Kernels::kAuto, Kernels::kTorch}) {
    const auto model = make_model_factory({.name = "resnet18", .kernels = kernels})();
    model.loss_sum(rows).loss.backward();
    // Only torch's own layers give the bias before a batch normalisation a gradient.
    CHECK(model.module->named_parameters()["0.bias"].grad().defined() == (kernels == Kernels::kTorch));
  }
}

TEST_CASE("under autocast the fused kernels compute in bfloat16") {
  auto by_torch = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat32);
  auto fused = small_resnet18(Kernels::kAuto, torch::kCPU, torch::kFloat32);
  auto exact = small_resnet18(Kernels::kTorch, torch::kCPU, torch::kFloat64);
  const auto X = torch::rand({16, 1, 28, 28});
  const auto in_bf16 = [&](ResNet18& net) {
    const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
    return net->forward(X);
  };
  const auto fused_logits = in_bf16(fused);
  const auto torch_logits = in_bf16(by_torch);
  const auto logits = exact->forward(X.to(torch::kFloat64));
  CHECK(fused_logits.scalar_type() == torch::kBFloat16);
  CHECK_FALSE(fused_logits.equal(torch_logits));
  CHECK(max_difference(fused_logits, logits) <=
        2 * max_difference(torch_logits, logits) + 1e-3 * max_abs(logits));
  fused_logits.sum().backward();
  for (const auto& item : fused->named_parameters()) {
    if (before_batch_norm(item.key())) continue;
    INFO(item.key());
    CHECK(item.value().grad().scalar_type() == torch::kFloat32);
    CHECK(item.value().grad().isfinite().all().item<bool>());
  }
}
