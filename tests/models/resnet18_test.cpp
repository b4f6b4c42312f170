// The chapters' ResNet-18: its parameters, memory formats, types and limits, by hand calculation.
#include <torch/nn/modules/conv.h>

#include <lockstep/tests/catch.h>

#include <memory>
#include <vector>

#include <lockstep/models/costs.h>
#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/resnet18_cases.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

ResNet18Options small(int64_t width = 8) {
  ResNet18Options options;
  options.width = width;
  return options;
}

bool in_channels_last(const torch::Tensor& a) {
  return a.is_contiguous(torch::MemoryFormat::ChannelsLast) && !a.is_contiguous();
}

}  // namespace

TEST_CASE("ResNet-18 has the chapters' 11,175,818 parameters") {
  const auto conv = [](int64_t in, int64_t out, int64_t kernel) { return out * in * kernel * kernel + out; };
  const auto batch_norm = [](int64_t channels) { return 2 * channels; };
  int64_t expected = conv(1, 64, 3) + batch_norm(64);
  expected += 4 * (conv(64, 64, 3) + batch_norm(64));
  for (const int64_t c : {128, 256, 512}) {
    expected += conv(c / 2, c, 3) + conv(c / 2, c, 1) + 3 * conv(c, c, 3) + 4 * batch_norm(c);
  }
  expected += 512 * 10 + 10;
  REQUIRE(expected == 11'175'818);

  ResNet18 net;
  int64_t count = 0;
  for (const auto& param : net->parameters()) {
    CHECK(param.requires_grad());
    count += param.numel();
  }
  CHECK(count == expected);
}

TEST_CASE("weights, gradients and activations are in channels_last") {
  const auto dtype = GENERATE(torch::kFloat32, torch::kFloat64);
  const int64_t channels = GENERATE(1, 3);
  INFO(dtype << ", " << channels << " channels");
  auto options = small();
  options.channels = channels;
  options.dtype = dtype;
  ResNet18 net(options);
  const auto X = torch::rand({4, channels, 28, 28}, dtype);
  const auto logits = net->forward(X);
  logits.sum().backward();
  for (const auto& item : net->named_parameters()) {
    if (item.value().dim() != 4) continue;
    INFO(item.key());
    CHECK(item.value().suggest_memory_format() == torch::MemoryFormat::ChannelsLast);
    CHECK(item.value().grad().strides() == item.value().strides());
  }

  // The layers by name, one after another.
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto layers = net->named_modules("", /*include_self=*/false);
  const auto first = [&] { return layers["0"]->as<torch::nn::Conv2dImpl>()->forward(X); };
  TwoUses h{first(), first()};
  CHECK(in_channels_last(h.first));
  int blocks = 0;
  for (const auto& layer : layers) {
    auto* block = layer.value()->as<ResidualImpl>();
    if (!block) continue;
    h = block->forward(h);
    INFO(layer.key() << ": " << h.first.sizes() << " with strides " << h.first.strides());
    CHECK(in_channels_last(h.first));
    ++blocks;
  }
  CHECK(blocks == 8);
  CHECK(h.first.sizes() == std::vector<int64_t>{4, 64, 4, 4});

  // A weight in torch's default format gives a result in that format.
  auto weight = layers["0"]->named_parameters()["weight"];
  weight.set_data(weight.clone(torch::MemoryFormat::Contiguous));
  if (channels > 1) CHECK_FALSE(in_channels_last(first()));
}

TEST_CASE("X may have any memory format, and in evaluation the logits of a row depend on that row only") {
  auto options = small();
  options.channels = 3;
  options.dtype = torch::kFloat64;
  ResNet18 net(options);
  net->eval();
  const auto X = torch::rand({5, 3, 28, 28}, torch::kFloat64);
  const auto expected = net->forward(X);
  const double tolerance = 1e-12 * max_abs(expected);
  CHECK(max_abs(net->forward(X.contiguous(torch::MemoryFormat::ChannelsLast)) - expected) <= tolerance);
  CHECK(max_abs(net->forward(X.transpose(2, 3).contiguous().transpose(2, 3)) - expected) <= tolerance);
  CHECK(max_abs(net->forward(X.slice(0, 2, 3)) - expected.slice(0, 2, 3)) <= tolerance);
  CHECK(max_abs(net->forward(X.flip(3)) - expected) > tolerance);
}

TEST_CASE("ResNet-18 takes no rows, and one row") {
  for (const bool batch_norm : {true, false}) {
    auto options = small();
    options.batch_norm = batch_norm;
    ResNet18 net(options);
    const auto logits = net->forward(torch::rand({1, 1, 28, 28}));
    logits.sum().backward();
    CHECK(logits.sizes() == std::vector<int64_t>{1, 10});
    for (const auto& item : net->named_parameters()) {
      INFO(item.key());
      // The biases before a fused batch normalisation have no gradient.
      const auto& gradient = item.value().grad();
      CHECK((gradient.defined() ? gradient.isfinite().all().item<bool>()
                                : batch_norm && item.key().ends_with("bias")));
    }
    net->eval();
    CHECK(net->forward(torch::rand({0, 1, 28, 28})).sizes() == std::vector<int64_t>{0, 10});
    CHECK(net->forward(torch::rand({0, 1, 28, 28})).scalar_type() == torch::kFloat32);
  }
}

TEST_CASE("to() converts all but the counters and keeps the memory format") {
  ResNet18 net(small());
  const std::shared_ptr<torch::nn::Module> module = net.ptr();  // as in a Model
  const auto before = sha256_of(net->parameters());
  const auto check_types = [&](torch::ScalarType dtype) {
    for (const auto& param : module->parameters()) {
      CHECK(param.scalar_type() == dtype);
      CHECK(param.requires_grad());
      if (param.dim() == 4) CHECK(param.suggest_memory_format() == torch::MemoryFormat::ChannelsLast);
    }
    int counters = 0;
    for (const auto& buffer : module->named_buffers()) {
      INFO(buffer.key());
      const bool counter = buffer.key().ends_with("num_batches_tracked");
      CHECK(buffer.value().scalar_type() == (counter ? torch::kInt64 : dtype));
      counters += counter;
    }
    CHECK(counters == 17);
  };
  module->to(torch::kFloat64);
  check_types(torch::kFloat64);
  CHECK(net->forward(torch::rand({2, 1, 28, 28}, torch::kFloat64)).scalar_type() == torch::kFloat64);
  // The tensors that the layers hold were converted, not replaced.
  for (const auto& buffer : module->named_buffers()) {
    if (buffer.key().ends_with("num_batches_tracked")) CHECK(buffer.value().item<int64_t>() == 1);
  }
  module->to(torch::kCPU, torch::kFloat32);
  check_types(torch::kFloat32);
  CHECK(sha256_of(net->parameters()) == before);
  module->to(torch::kCPU);
  check_types(torch::kFloat32);
}

TEST_CASE("parameters may move into one flat buffer") {
  ResNet18 net(small());
  net->eval();
  const torch::NoGradGuard no_grad;
  const auto X = torch::rand({2, 1, 28, 28});
  const auto expected = net->forward(X);
  int64_t size = 0;
  for (const auto& param : net->parameters()) size += param.numel();
  const auto flat = torch::empty({size});
  int64_t offset = 0;
  for (auto& param : net->parameters()) {
    const auto view = flat.as_strided(param.sizes(), param.strides(), offset);
    view.copy_(param);
    param.set_data(view);
    offset += param.numel();
  }
  CHECK(max_abs(expected) > 0);
  CHECK(net->forward(X).allclose(expected, 1e-5, 1e-6 * max_abs(expected)));
  flat.zero_();
  CHECK(max_abs(net->forward(X)) == 0);
}

TEST_CASE(
    "in bfloat16 on CPUs the results of lockstep's convolutions and of the first convolution stay float") {
  ResNet18Options options;
  // 64, 128, 256 and 512 channels. The first convolution of a stage after the first has stride 2.
  const int64_t by_lockstep = 4 * 64 * 28 * 28 + 3 * (128 * 14 * 14 + 256 * 7 * 7 + 512 * 4 * 4);
  const auto floats = [&](torch::DeviceType device, int64_t height = 28, int64_t width = 28) {
    return resnet18_costs(options, device, /*threads=*/1, height, width).floats;
  };
  CHECK(floats(torch::kCPU) == 64 * 28 * 28 + (fast_bf16_kernels() ? by_lockstep : 0));
  CHECK(floats(torch::kCUDA) == 0);
  options.kernels = Kernels::kDirect;
  CHECK(floats(torch::kCPU) == 64 * 28 * 28);
  options.kernels = Kernels::kTorch;
  CHECK(floats(torch::kCPU) == 0);
  options = {.dtype = torch::kFloat64};
  CHECK(floats(torch::kCPU) == 0);
  options = {.width = 16};
  CHECK(floats(torch::kCPU, 13, 10) ==
        16 * 13 * 10 + (fast_bf16_kernels() ? 3 * (64 * 4 * 3 + 128 * 2 * 2) : 0));
}

TEST_CASE("sizes and types that ResNet-18 cannot have are refused") {
  const auto refused = [](auto change) {
    auto options = small();
    change(options);
    CHECK_THROWS_AS(ResNet18(options), UsageError);
  };
  refused([](auto& options) { options.channels = 0; });
  refused([](auto& options) { options.classes = -1; });
  refused([](auto& options) { options.dtype = torch::kInt64; });
  CHECK_THROWS_WITH(ResNet18(small(0)), "resnet18 with width = 0 cannot be built, at least 1 is needed");
}
