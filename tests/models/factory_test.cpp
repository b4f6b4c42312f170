// Models by name, and their initialization.

#include <lockstep/tests/catch.h>
#include <thread>

#include <lockstep/models/costs.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

ModelSpec spec(const std::string& name) {
  ModelSpec spec;
  spec.name = name;
  return spec;
}

bool same_parameters(const torch::nn::Module& a, const torch::nn::Module& b) {
  const auto left = a.named_parameters(), right = b.named_parameters();
  if (left.keys() != right.keys()) return false;
  for (const auto& item : left) {
    if (!item.value().equal(right[item.key()])) return false;
  }
  return true;
}

ResNet18Options narrow(int64_t width = 8) {
  ResNet18Options options;
  options.width = width;
  return options;
}

}  // namespace

TEST_CASE("models are made by name") {
  CHECK(model_names() == std::vector<std::string>{"lenet", "resnet18"});
  for (const auto& name : model_names()) {
    INFO(name);
    auto chosen = spec(name);
    chosen.seed = 3;
    const auto factory = make_model_factory(chosen);
    const auto model = factory(), again = factory();
    CHECK(model.module != again.module);
    CHECK(same_parameters(*model.module, *again.module));
    chosen.seed = 4;
    CHECK_FALSE(same_parameters(*model.module, *make_model_factory(chosen)().module));
  }
  CHECK(same_parameters(*make_model_factory(spec("lenet"))().module, *LeNet(0)));
  CHECK(same_parameters(*make_model_factory(spec("resnet18"))().module, *ResNet18()));
}

TEST_CASE("a model's loss is its network's cross entropy, summed over the rows") {
  const auto name = GENERATE(as<std::string>{}, "lenet", "resnet18");
  INFO(name);
  auto chosen = spec(name);
  chosen.dtype = torch::kFloat64;
  const auto model = make_model_factory(chosen)();
  const Batch rows{torch::rand({3, 1, 28, 28}, torch::kFloat64), torch::tensor({7, 0, 4})};
  model.module->eval();
  auto* lenet = model.module->as<LeNetImpl>();
  const auto logits =
      lenet ? lenet->forward(rows.input()) : model.module->as<ResNet18Impl>()->forward(rows.input());
  REQUIRE(logits.scalar_type() == torch::kFloat64);
  const auto of_class = logits.gather(1, rows.target().unsqueeze(1)).squeeze(1);
  const auto expected = (logits.exp().sum(1).log() - of_class).sum().item<double>();
  const auto outcome = model.loss_sum(rows);
  CHECK(outcome.loss.item<double>() == Approx(expected).epsilon(1e-12));
  CHECK(outcome.metrics[0].sum.item<int64_t>() == logits.argmax(1).eq(rows.target()).sum().item<int64_t>());
  outcome.loss.backward();
  for (const auto& param : model.module->parameters()) CHECK(param.grad().defined());
}

TEST_CASE("resnet18 takes the number of channels and classes and the initialization") {
  auto chosen = spec("resnet18");
  chosen.channels = 3;
  chosen.classes = 7;
  chosen.initialization = Initialization::kNormalZeroBias;
  const auto params = make_model_factory(chosen)().module->named_parameters();
  CHECK(params["0.weight"].sizes() == std::vector<int64_t>{64, 3, 3, 3});
  CHECK(params["fc.1.weight"].sizes() == std::vector<int64_t>{7, 512});
  CHECK(params["0.bias"].eq(0).all().item<bool>());
  // By default it starts as in the PyTorch chapter, with torch's biases.
  const auto by_default = make_model_factory(spec("resnet18"))().module->named_parameters();
  CHECK(by_default["0.bias"].ne(0).any().item<bool>());
}

TEST_CASE("an unknown name lists the known ones") {
  const std::string expected = "no model is named 'resnet19' | known models: lenet, resnet18";
  CHECK(refusal_and_hint([] { make_model_factory(spec("resnet19")); }) == expected);
  CHECK(refusal_and_hint([] { costs_of(spec("resnet19"), torch::kCPU); }) == expected);
  CHECK(refusal_and_hint([] { layers_of(spec("resnet19")); }) == expected);
}

TEST_CASE("options that a model does not take are refused before any replica is built") {
  struct Case {
    const char* model;
    std::function<void(ModelSpec&)> change;
    ExitCode code;
    const char* words;
  };
  const Case cases[] = {
      {"lenet", [](auto& chosen) { chosen.channels = 0; }, ExitCode::kUsage,
       "lenet for 0 channels of 28 x 28 pixels and 10 classes cannot be built"},
      {"lenet", [](auto& chosen) { chosen.width = 13; }, ExitCode::kData,
       "the data has images of 28 x 13 pixels, lenet takes 14 x 14 at least"},
      {"lenet", [](auto& chosen) { chosen.initialization = Initialization::kPaddle; }, ExitCode::kUsage,
       "lenet cannot start from paddle, it always starts from normal-zero-bias"},
      {"lenet", [](auto& chosen) { chosen.initialization = Initialization::kNormalZeroBias; },
       ExitCode::kDone, ""},
      {"lenet", [](auto& chosen) { chosen.dtype = torch::kInt64; }, ExitCode::kUsage, ""},
      {"resnet18", [](auto& chosen) { chosen.dtype = torch::kInt64; }, ExitCode::kUsage, ""},
      {"resnet18", [](auto& chosen) { chosen.classes = 0; }, ExitCode::kUsage, ""}};
  for (const auto& [name, change, code, words] : cases) {
    auto chosen = spec(name);
    change(chosen);
    auto found = ExitCode::kDone;
    const auto message = refusal_of<Error>([&] {
      try {
        make_model_factory(chosen);
      } catch (const Error& error) {
        found = error.exit_code();
        throw;
      }
    });
    INFO(name << ": " << message);
    CHECK(found == code);
    CHECK_THAT(message, Catch::Matchers::ContainsSubstring(words));
  }
}

TEST_CASE("each model says how much memory a row of a batch takes") {
  auto lenet = spec("lenet"), resnet18 = spec("resnet18");
  // By hand. lockstep's kernels: X, their copy of it, 20 x 12 x 12 pooled, the signs of 20 x 12 x 12 and 50 x
  // 4 x 4 as bytes, the features and their gradient, the hidden layer, the logits.
  const auto by_lockstep = costs_of(lenet, torch::kCPU);
  CHECK(by_lockstep.activations == 784 + 784 + 2'880 + (2'880 + 800) / 4 + 2 * 800 + 128 + 10);
  CHECK(by_lockstep.floats == by_lockstep.activations);
  CHECK(by_lockstep.working_bytes > 0);
  CHECK(costs_of(lenet, torch::kCPU, 3).working_bytes == 3 * by_lockstep.working_bytes);
  // torch's: X, both convolutions and poolings, twice the hidden layer; in the first layer's backward pass
  // two gradients, and a copy with 32 channels.
  constexpr int64_t kByTorch = 784 + 13'520 + 3'380 + 4'050 + 800 + 256 + 2 * 13'520 + 32 * 26 * 26;
  const auto on_gpu = costs_of(lenet, torch::kCUDA);
  CHECK(on_gpu.activations == kByTorch);
  CHECK(on_gpu.floats == 0);
  CHECK(on_gpu.working_bytes == 0);
  lenet.kernels = Kernels::kTorch;
  CHECK(costs_of(lenet, torch::kCPU).activations == kByTorch);
  CHECK(costs_of(resnet18, torch::kCPU).activations == resnet18_costs({}, torch::kCPU).activations);
  CHECK(costs_of(resnet18, torch::kCPU, 2).working_bytes > costs_of(resnet18, torch::kCPU).working_bytes);
  CHECK(costs_of(resnet18, torch::kCUDA).working_bytes == 0);
  auto larger = resnet18;
  larger.height = 56;
  larger.width = 42;
  CHECK(costs_of(larger, torch::kCPU).activations == resnet18_costs({}, torch::kCPU, 1, 56, 42).activations);
  CHECK(costs_of(larger, torch::kCPU).flops > 2 * costs_of(resnet18, torch::kCPU).flops);
}

TEST_CASE("only LeNet stays in fp32, on CPUs and with lockstep's kernels") {
  auto lenet = spec("lenet");
  CHECK(stays_in_fp32(lenet, torch::kCPU));
  CHECK_FALSE(stays_in_fp32(lenet, torch::kCUDA));
  CHECK_FALSE(stays_in_fp32(spec("resnet18"), torch::kCPU));
  lenet.kernels = Kernels::kDirect;
  CHECK(stays_in_fp32(lenet, torch::kCPU));
  lenet.kernels = Kernels::kTorch;
  CHECK_FALSE(stays_in_fp32(lenet, torch::kCPU));
  lenet = spec("lenet");
  lenet.dtype = torch::kFloat64;
  CHECK_FALSE(stays_in_fp32(lenet, torch::kCPU));
  CHECK_THROWS_AS(stays_in_fp32(spec("alexnet"), torch::kCPU), UsageError);
}

TEST_CASE("Paddle's initialization has its documented distributions") {
  ResNet18Options options;
  options.initialization = Initialization::kPaddle;
  ResNet18 net(options);
  int convolutions = 0;
  for (const auto& item : net->named_parameters()) {
    INFO(item.key());
    const auto& value = item.value();
    const double n = static_cast<double>(value.numel());
    if (item.key().ends_with("bias")) {
      CHECK(max_abs(value) == 0);
    } else if (value.dim() == 4) {
      ++convolutions;
      const double sigma = std::sqrt(2. / static_cast<double>(value.size(1) * value.size(2) * value.size(3)));
      // Five standard errors of a deviation and of a mean from n draws.
      CHECK(std::abs(value.std().item<double>() - sigma) < 5 * sigma / std::sqrt(2 * n));
      CHECK(std::abs(value.mean().item<double>()) < 5 * sigma / std::sqrt(n));
      // Tails of a normal distribution: of 36,864 draws and more 17 are expected beyond 3.5 sigma.
      if (n > 30'000) CHECK(max_abs(value) > 3.5 * sigma);
    } else if (value.dim() == 2) {
      const double bound = std::sqrt(6. / (512 + 10));
      CHECK(max_abs(value) <= bound);
      CHECK(max_abs(value) > .99 * bound);  // all 5,120 draws are below it once in e^51 cases
      // The deviation of a uniform distribution; its fourth moment makes the standard error sqrt(.2 / n).
      const double sigma = bound / std::sqrt(3.);
      CHECK(std::abs(value.std().item<double>() - sigma) < 5 * sigma * std::sqrt(.2 / n));
    } else {
      CHECK(value.eq(1).all().item<bool>());  // batch normalisation
    }
  }
  CHECK(convolutions == 20);
}

TEST_CASE("building a network leaves torch's generator as it was") {
  const auto draw = [] { return torch::cat({torch::randn({1}), torch::rand({3})}); };
  // randn of one value draws two and keeps the second for its next call.
  torch::manual_seed(5);
  torch::randn({1});
  const auto expected = draw();
  torch::manual_seed(5);
  torch::randn({1});
  ResNet18 net(narrow());
  CHECK(draw().equal(expected));

  torch::manual_seed(5);
  torch::randn({1});
  try {
    const SeededGenerator generator(1);
    CHECK_FALSE(draw().equal(expected));
    throw UsageError("while the generator is seeded");
  } catch (const UsageError&) {
    CHECK(draw().equal(expected));
  }
}

TEST_CASE("threads that build networks at the same time get the weights of their seeds") {
  constexpr size_t kThreads = 4;
  const auto build = [](size_t seed) {
    auto options = narrow(16);
    options.seed = seed;
    return std::make_shared<ResNet18Impl>(options);
  };
  std::vector<std::shared_ptr<ResNet18Impl>> together(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back([&, i] { together[i] = build(i); });
  for (auto& thread : threads) thread.join();
  for (size_t i = 0; i < kThreads; ++i) CHECK(same_parameters(*together[i], *build(i)));
  CHECK_FALSE(same_parameters(*together[0], *together[1]));
}

// By hand. LeNet: 121,680 + 2,025,000 + 103,680 multiplications forward. ResNet-18: 455,800,832, of these
// 451,584 in the first convolution.
TEST_CASE("the arithmetic of a training step is that counted by hand") {
  CHECK(costs_of(spec("lenet"), torch::kCPU).flops == 2 * (3 * 2'250'360 - 121'680));
  CHECK(costs_of(spec("resnet18"), torch::kCPU).flops == 2 * (3 * int64_t{455'800'832} - 451'584));
}

TEST_CASE("a model's layers have all of its arithmetic, and compute") {
  for (const char* name : {"lenet", "resnet18"}) {
    int64_t flops = 0, first = 0;
    for (const auto& layer : layers_of({.name = name})) {
      INFO(layer.name);
      flops += layer.count * (layer.forward_flops + layer.backward_flops);
      first += layer.first;
      auto sizes = layer.input;
      sizes.insert(sizes.begin(), 2);
      const auto X = torch::rand(sizes).requires_grad_(!layer.first);
      layer.forward(X).sum().backward();
      CHECK(X.grad().defined() != layer.first);
    }
    CHECK(flops == costs_of(spec(name), torch::kCPU).flops);
    CHECK(first == 1);
  }
  // The chapters' network by hand: a first convolution, 4 + 3 + 3 + 3 with stride 1, three with stride 2,
  // three of 1 x 1; 17 batch normalisations; one linear layer.
  int64_t convolutions = 0, others = 0;
  for (const auto& layer : layers_of({.name = "resnet18"})) {
    (layer.input.size() == 3 && layer.forward_flops > 0 ? convolutions : others) += layer.count;
  }
  CHECK(convolutions == 20);
  CHECK(others == 18);
}
