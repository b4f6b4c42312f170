// Gradients of lockstep's kernels of LeNet as torch operations: which exist, how often they can be taken, and
// what memory they keep.
#include <torch/autograd.h>

#include <lockstep/tests/catch.h>
#include <set>
#include <string>
#include <vector>

#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/features.h>
#include <lockstep/models/layers/cpu/lenet/head.h>
#include <lockstep/tests/models/lenet_cases.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

struct NoGradient : torch::autograd::Function<NoGradient> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x) {
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list&) {
    return {torch::Tensor()};
  }
};

// Records what the layers of this CPU are asked for. Needs a single thread.
struct Asked {
  std::set<const float*> kept;  // where forward kept images
  bool layer1 = false, layer2 = false;
  bool features = false, head = false;
};
Asked asked;

LeNetLayers<float> asked_layers() {
  static const auto& layers_of_cpu = *cpu_kernels<float>().winograd_lenet;
  auto layers = layers_of_cpu;
  layers.forward = [](const float* images, int rows, const LeNetFilters<float>& filters,
                      const LeNetKept<float>& kept, float* scratch, float* features) {
    asked.kept.insert(kept.images);
    layers_of_cpu.forward(images, rows, filters, kept, scratch, features);
  };
  layers.backward = [](const float* dfeatures, int64_t rows, const LeNetFilters<float>& filters,
                       const LeNetKept<float>& kept, LeNetWanted wanted, float* scratch, float* sums) {
    asked.layer1 = wanted.layer1;
    asked.layer2 = wanted.layer2;
    layers_of_cpu.backward(dfeatures, rows, filters, kept, wanted, scratch, sums);
  };
  layers.head_backward = [](const float* features, const float* hidden, const float* dlogits, int rows,
                            const LeNetHead<float>& head, float* scratch, float* dfeatures,
                            const LeNetHeadGradients<float>& gradients) {
    asked.features = dfeatures != nullptr;
    asked.head = gradients.W3 != nullptr;
    layers_of_cpu.head_backward(features, hidden, dlogits, rows, head, scratch, dfeatures, gradients);
  };
  return layers;
}

template <class T>
torch::Tensor both(const torch::Tensor& X, const Tensors& p, const LeNetLayers<T>& layers) {
  return lenet_head<T>(lenet_features<T>(X, p[0], p[1], p[2], p[3], layers), p[4], p[5], p[6], p[7], layers);
}

}  // namespace

TEST_CASE(
    "LeNet's frozen parameters get no gradient and cost no matrix products, and the others' gradients stay "
    "the same") {
  const Threads guard(1);
  const LeNetCase test(37);
  const auto layers = asked_layers();
  const auto step = [&](const std::set<size_t>& trained) {
    auto leaves = leaves_of(test, torch::kFloat32, trained);
    asked = {};
    both(test.X.to(torch::kFloat32), leaves, layers).backward(test.gradient.to(torch::kFloat32));
    Tensors gradients;
    for (const auto& leaf : leaves) gradients.push_back(leaf.grad());
    return gradients;
  };
  const auto all = step(kAllOfLeNet);
  struct Case {
    std::set<size_t> trained;
    bool layer1, layer2, features, head;
  };
  for (const auto& [trained, layer1, layer2, features, head] :
       std::vector<Case>{{kAllOfLeNet, true, true, true, true},
                         {{0, 1}, true, false, true, false},
                         {{1}, true, false, true, false},
                         {{2, 7}, false, true, true, true},
                         {{3}, false, false, true, false},
                         {{0, 2}, true, true, true, false},
                         {{4, 5, 6, 7}, false, false, false, true},
                         {{6}, false, false, false, true}}) {
    const auto found = step(trained);
    INFO("trained: " << ::Catch::Detail::stringify(trained));
    CHECK(asked.layer1 == layer1);
    CHECK(asked.layer2 == layer2);
    CHECK(asked.features == features);
    CHECK(asked.head == head);
    for (size_t i = 0; i < all.size(); ++i) {
      CHECK(found[i].defined() == trained.contains(i));
      if (trained.contains(i)) CHECK(found[i].equal(all[i]));
    }
  }
}

TEST_CASE("without a backward pass LeNet keeps one group of images per thread") {
  const LeNetCase test(80);
  const auto layers = asked_layers();
  const auto groups = static_cast<size_t>((80 + layers.lanes - 1) / layers.lanes);
  const Threads guard(1);
  const auto forward = [&](const std::set<size_t>& trained) {
    asked = {};
    return both(test.X.to(torch::kFloat32), leaves_of(test, torch::kFloat32, trained), layers);
  };
  const auto kept = forward(kAllOfLeNet);
  CHECK(asked.kept.size() == groups);
  CHECK(forward({}).equal(kept));
  CHECK(asked.kept.size() == 1);
  const torch::NoGradGuard no_grad;
  CHECK(forward(kAllOfLeNet).equal(kept));
  CHECK(asked.kept.size() == 1);
  const Threads two(2);
  CHECK(both(test.X.to(torch::kFloat32), leaves_of(test, torch::kFloat32, {}),
             *cpu_kernels<float>().winograd_lenet)
            .equal(kept));
}

TEST_CASE("LeNet's gradients can be asked for twice, and of two graphs at once") {
  const LeNetCase test(21), other(34);
  const auto expected = lenet_step(Kernels::kAuto, test, torch::kFloat32);
  const auto params = leaves_of(test, torch::kFloat32, kAllOfLeNet);
  const auto logits = lenet(test.X.to(torch::kFloat32), params);
  const auto of_other = lenet(other.X.to(torch::kFloat32), params);
  torch::autograd::grad({of_other}, params, {other.gradient.to(torch::kFloat32)});
  for (const bool retain : {true, false}) {
    const auto found = torch::autograd::grad({logits}, params, {test.gradient.to(torch::kFloat32)}, retain);
    for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].equal(expected[i + 1]));
  }
}

TEST_CASE("LeNet's gradients from an undefined gradient are zeros") {
  const LeNetCase test(3);
  const auto params = leaves_of(test, torch::kFloat32, kAllOfLeNet);
  const auto none = NoGradient::apply(lenet(test.X.to(torch::kFloat32), params));
  for (const auto& gradient : torch::autograd::grad({none.sum()}, params)) CHECK(max_abs(gradient) == 0);
}

TEST_CASE("each of LeNet's gradients has memory of its own") {
  for (const int threads : {1, 3}) {
    const Threads guard(threads);
    const auto all = lenet_step(Kernels::kAuto, LeNetCase(64), torch::kFloat32);
    for (const auto& tensor : all) CHECK(tensor.storage().nbytes() == tensor.nbytes());
  }
}

TEST_CASE(
    "with lockstep's kernels LeNet's gradients have no gradients, and an error says so; with torch's they "
    "have") {
  const LeNetCase test(2);
  const auto params = leaves_of(test, torch::kFloat32, kAllOfLeNet);
  const auto X = test.X.to(torch::kFloat32);
  const auto differentiable = [](const torch::Tensor& y, const Tensors& of) {
    return torch::autograd::grad({y.square().sum()}, of, {}, /*retain_graph=*/true, /*create_graph=*/true);
  };
  CHECK_THROWS_WITH(differentiable(lenet(X, params), params),
                    ContainsSubstring("LeNet's linear layers can be differentiated once") &&
                        ContainsSubstring("Kernels::kTorch"));
  const auto features = lenet_features<float>(X, params[0], params[1], params[2], params[3],
                                              *cpu_kernels<float>().winograd_lenet);
  CHECK_THROWS_WITH(differentiable(features, {params[0]}),
                    ContainsSubstring("LeNet's convolutions can be differentiated once") &&
                        ContainsSubstring("Kernels::kTorch"));
  const auto by_torch = differentiable(lenet_by(Kernels::kTorch, X, params), params);
  CHECK(torch::autograd::grad({by_torch[0].square().sum()}, {params[0]})[0].defined());
}

TEST_CASE("LeNet's kernels refuse numbers of another type before they compute") {
  const LeNetCase test(40);
  const auto doubles = leaves_of(test, torch::kFloat64, {}), floats = leaves_of(test, torch::kFloat32, {});
  const auto& of_floats = *cpu_kernels<float>().winograd_lenet;
  const auto& of_doubles = *cpu_kernels<double>().winograd_lenet;
  const auto features = [&]<class T>(const LeNetLayers<T>& layers, const torch::Tensor& X, const Tensors& p) {
    return lenet_features<T>(X, p[0], p[1], p[2], p[3], layers);
  };
  const auto head = [&]<class T>(const LeNetLayers<T>& layers, const torch::Tensor& h, const Tensors& p) {
    return lenet_head<T>(h, p[4], p[5], p[6], p[7], layers);
  };
  const auto h = torch::rand({40, 800});
  CHECK_THROWS_WITH(features(of_floats, test.X, doubles),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_WITH(features(of_doubles, test.X.to(torch::kFloat32), floats),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_WITH(features(of_floats, test.X.to(torch::kFloat32), doubles),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_WITH(head(of_floats, h.to(torch::kFloat64), doubles),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_WITH(head(of_doubles, h, floats),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_WITH(head(of_floats, h, doubles),
                    ContainsSubstring("Float of [") && ContainsSubstring("Double of ["));
  CHECK_THROWS_AS(lenet(test.X.to(torch::kFloat32), doubles), c10::Error);
}
