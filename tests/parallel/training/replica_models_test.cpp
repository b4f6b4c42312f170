// Copies of a model on several devices: moving one, and reading a parameter on one.
#include <torch/nn/module.h>
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/training/replica_models.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

Model small_residual() {
  ResNet18Options options;
  options.width = 4;
  return model_factory<ResNet18Impl>(options)();
}

// A module with one parameter, on this device.
Model holder(torch::Device device) {
  auto module = std::make_shared<torch::nn::Module>();
  module->register_parameter("weight", torch::zeros({2}, device));
  return {.module = module, .loss_sum = {}};
}

}  // namespace

TEST_CASE("moving a module converts only floating point: counters stay int64") {
  const auto model = small_residual();
  auto& module = *model.module;
  const auto counter = [&] { return module.named_buffers()["1.num_batches_tracked"]; };
  counter().fill_(int64_t{1} << 60 | 1);  // a double has too few bits for it
  const auto value = module.parameters()[0].detach().to(torch::kFloat64);
  move_module(module, torch::kCPU, torch::kFloat64);
  for (const auto& param : module.parameters()) {
    CHECK(param.scalar_type() == torch::kFloat64);
    CHECK(param.requires_grad());
    CHECK(param.is_leaf());
  }
  CHECK(module.named_buffers()["1.running_mean"].scalar_type() == torch::kFloat64);
  CHECK(module.parameters()[0].equal(value));
  CHECK(counter().scalar_type() == torch::kInt64);
  CHECK(counter().item<int64_t>() == (int64_t{1} << 60 | 1));
  // The layers compute with what was moved.
  const torch::Tensor loss =
      model.loss_sum({torch::rand({2, 1, 28, 28}, torch::kFloat64), torch::tensor({1, 2})}).loss;
  CHECK(loss.scalar_type() == torch::kFloat64);
  loss.backward();
  CHECK(module.parameters()[0].grad().scalar_type() == torch::kFloat64);
}

TEST_CASE("moving a module keeps strides, and does not copy what is there already") {
  const auto model = small_residual();
  auto weight = model.module->parameters()[0];  // (4, 1, 3, 3)
  auto wide = model.module->named_parameters()["resnet_block1.0.conv1.weight"];
  wide.set_data(wide.detach().contiguous(at::MemoryFormat::ChannelsLast));
  const auto strides = wide.strides().vec();
  REQUIRE_FALSE(wide.is_contiguous());
  const auto* address = weight.const_data_ptr();
  move_module(*model.module, torch::kCPU, torch::kFloat32);
  CHECK(weight.const_data_ptr() == address);
  CHECK(wide.strides().vec() == strides);
  move_module(*model.module, torch::kCPU, torch::kFloat64);
  CHECK(weight.const_data_ptr() != address);
  CHECK(wide.scalar_type() == torch::kFloat64);
  CHECK(wide.strides().vec() == strides);
}

TEST_CASE("moving a module gives expanded tensors memory for all their elements") {
  torch::nn::Module module;
  const auto mask = module.register_buffer("mask", torch::full({1, 3}, 2.).expand({4, 3}));
  const auto gaps = module.register_buffer("gaps", torch::arange(6.).view({3, 2}).select(1, 0));
  move_module(module, torch::kCPU, torch::kFloat32);
  CHECK(mask.equal(torch::full({4, 3}, 2.F)));
  mask[1].fill_(5);
  CHECK(mask.sum().item<float>() == 9 * 2 + 3 * 5);
  CHECK(gaps.equal(torch::tensor({0.F, 2.F, 4.F})));
}

TEST_CASE("read_parameter() returns the parameter on the requested device") {
  // The meta device needs no hardware.
  const std::vector<Model> replicas = {holder(torch::kMeta), holder(torch::kCPU), holder(torch::kCPU)};
  CHECK(read_parameter(replicas, "weight", torch::kMeta).is_same(replicas[0].module->parameters()[0]));
  // With several replicas on a device, the first one's.
  CHECK(read_parameter(replicas, "weight", torch::kCPU).is_same(replicas[1].module->parameters()[0]));
}

TEST_CASE("errors of read_parameter() name the device without it, the devices with it, or a known name") {
  const std::vector<Model> replicas = {small_residual(), small_residual()};
  const torch::Device gpu(torch::kCUDA, 1);
  CHECK_THROWS_AS(read_parameter(replicas, "0.weight", gpu), DeviceError);
  CHECK_THROWS_WITH(read_parameter(replicas, "0.weight", gpu),
                    ContainsSubstring("0.weight is not initialized on cuda:1"));
  try {
    read_parameter(replicas, "0.weight", gpu);
  } catch (const DeviceError& error) {
    CHECK_THAT(error.hint(), ContainsSubstring("only initialized on [cpu, cpu]"));
  }
  CHECK_THROWS_AS(read_parameter(replicas, "0.weigth", torch::kCPU), UsageError);
  CHECK_THROWS_WITH(read_parameter(replicas, "0.weigth", torch::kCPU),
                    ContainsSubstring("no parameter named '0.weigth'"));
}
