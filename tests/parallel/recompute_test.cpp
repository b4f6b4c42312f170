// A part that is computed again during backward, beside the same part without that.
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include <lockstep/parallel/recompute.h>
#include <lockstep/parallel/replica_random.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Tensors = std::vector<torch::Tensor>;
using Part = std::function<torch::Tensor(const torch::Tensor&)>;
using Through = std::function<torch::Tensor(const torch::nn::Module&, const Part&, const torch::Tensor&)>;

const Through kOnce = [](const auto&, const Part& part, const auto& x) { return part(x); };
const Through kAgain = [](const auto& module, const Part& part, const auto& x) {
  return recompute(module, part, x);
};

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 6));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(6));
  torch::nn::BatchNorm1d average =  // of all batches: it depends on their number
      register_module("average",
                      torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(6).momentum(std::nullopt)));
  torch::nn::Dropout dropout = register_module("dropout", torch::nn::Dropout(.4));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(6, 6));
  torch::nn::Embedding embedding = register_module("embedding", torch::nn::Embedding(5, 6));
};

// Runs forward and backward of a small network, parts of it through `through`.
struct Case {
  std::string name;
  std::function<void(NetImpl& net, const torch::Tensor& x, const Through& through)> run;
};

const std::vector<Case> kCases = {
    {"layers",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return net.second(torch::tanh(net.first(h))); };
       through(net, part, x).square().sum().backward();
     }},
    {"dropout with torch's generator",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return net.dropout(torch::tanh(net.first(h))); };
       const auto h = through(net, part, x);
       (through(net, part, h) * torch::rand_like(h)).square().sum().backward();
     }},
    {"dropout with a replica's generator, backward without it",
     [](auto& net, const auto& x, const auto& through) {
       torch::Tensor loss;
       {
         const ReplicaRandom random(/*seed=*/7, /*step=*/2, /*rank=*/1);
         const auto part = [&net](const auto& h) { return net.dropout(torch::tanh(net.first(h))); };
         loss = through(net, part, x).square().sum() + torch::rand({});
       }
       loss.backward();
     }},
    {"backward with another generator, which goes on",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return torch::rand_like(h) * net.first(h); };
       const auto loss = through(net, part, x).square().sum();
       const ReplicaRandom random(/*seed=*/7, /*step=*/2, /*rank=*/1);
       loss.backward();
       net.second(torch::rand_like(x)).sum().backward();
     }},
    {"batch norms",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return net.average(net.norm(net.first(h)).relu()); };
       through(net, part, x).pow(3).sum().backward();
     }},
    {"a parameter with several uses, an input with several",
     [](auto& net, const auto& x, const auto& through) {
       const auto h = torch::tanh(net.first(x));
       const auto part = [&net](const auto& in) {
         return net.first(torch::tanh(net.first(in)) * in) + torch::sin(in);
       };
       (net.first(through(net, part, h)) + h).square().sum().backward();
     }},
    {"nested",
     [](auto& net, const auto& x, const auto& through) {
       const auto inner = [&net](const auto& h) { return net.dropout(torch::tanh(net.first(h))); };
       const auto middle = [&net, inner, through](const auto& h) {
         return torch::sin(net.norm(through(net, inner, torch::cos(through(net, inner, h)))));
       };
       const auto outer = [&net, middle, through](const auto& h) {
         return torch::tanh(net.second(through(net, middle, torch::exp(h))));
       };
       through(net, outer, torch::tanh(x)).square().sum().backward();
     }},
    {"bf16 autocast, backward without it",
     [](auto& net, const auto& x, const auto& through) {
       torch::Tensor loss;
       {
         const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
         const auto part = [&net](const auto& h) {
           return net.first(torch::tanh(net.second(torch::tanh(net.first(h)))));
         };
         loss = net.second(through(net, part, net.first(x))).to(torch::kFloat).square().sum();
       }
       loss.backward();
     }},
    {"bf16 autocast around backward and another forward pass",
     [](auto& net, const auto& x, const auto& through) {
       const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
       const auto part = [&net](const auto& h) { return net.second(torch::tanh(net.first(h))); };
       for (int pass = 0; pass < 2; ++pass) {
         through(net, part, x).to(torch::kFloat).square().sum().backward();
       }
     }},
    {"an input that needs no gradient",
     [](auto& net, const auto&, const auto& through) {
       const auto part = [&net](const auto& ids) { return torch::tanh(net.first(net.embedding(ids))); };
       through(net, part, torch::tensor({3, 1, 3}, torch::kInt64)).square().sum().backward();
     }},
    {"a captured tensor",
     [](auto& net, const auto& x, const auto& through) {
       const auto other = torch::tanh(net.first(x));
       const auto part = [&net, other](const auto& h) { return net.second(h * other).sin(); };
       through(net, part, net.second(x)).square().sum().backward();
     }},
    {"a frozen parameter",
     [](auto& net, const auto& x, const auto& through) {
       net.first->weight.requires_grad_(false);
       const auto part = [&net](const auto& h) { return net.second(torch::tanh(net.first(h))); };
       through(net, part, x.detach()).square().sum().backward();
     }},
    {"operations in place, and views",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) {
         auto y = net.first(h);
         y.narrow(1, 0, 3).mul_(2);
         return (y.t() + 1).relu_().t().sin();
       };
       through(net, part, x).square().sum().backward();
     }},
    {"backward twice",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return net.dropout(torch::tanh(net.first(h))); };
       const auto loss = through(net, part, x).square().sum();
       loss.backward({}, /*retain_graph=*/true);
       loss.backward();
     }},
    {"a gradient penalty",
     [](auto& net, const auto& x, const auto& through) {
       const auto part = [&net](const auto& h) { return torch::tanh(net.second(torch::tanh(net.first(h)))); };
       const auto y = through(net, part, x).sum();
       const auto slope = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
       (y + (slope[0].norm() - 1).square()).backward();
     }},
    {"without grad mode",
     [](auto& net, const auto& x, const auto& through) {
       const torch::NoGradGuard no_grad;
       through(
           net, [&net](const auto& h) { return net.norm(h); }, x);
     }},
};

// The traces of two passes: gradients, buffers, and the states of generator and autocast.
Tensors results(const Case& test, const Through& through) {
  torch::manual_seed(3);
  NetImpl net;
  const auto x = torch::randn({4, 6}).requires_grad_();
  for (int pass = 0; pass < 2; ++pass) test.run(net, x, through);
  Tensors all = net.buffers();
  auto differentiated = net.parameters();
  differentiated.push_back(x);
  for (const auto& tensor : differentiated) {
    all.push_back(tensor.grad().defined() ? tensor.grad() : torch::zeros({}));
  }
  all.push_back(at::detail::getDefaultCPUGenerator().get_state());
  all.push_back(torch::matmul(torch::ones({1, 1}), torch::ones({1, 1})).view(-1));  // its dtype
  return all;
}

// The bytes of tensors that this thread has allocated and not freed while one lives.
struct LiveBytes : c10::MemoryReportingInfoBase {
  void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
    now += size;
    most = std::max(most, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
  int64_t now = 0, most = 0;
};

// {after forward, at most} of twelve blocks, each of which saves its input and three tensors of this size.
std::tuple<int64_t, int64_t> bytes_of_blocks(bool again) {
  const auto counted = std::make_shared<LiveBytes>();
  auto x = torch::ones({1024, 64}).requires_grad_();
  const auto block = [](const torch::Tensor& h) { return h.sin().cos().tanh().exp(); };
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counted);
  auto y = x;
  for (int i = 0; i < 12; ++i) y = again ? recompute(block, y) : block(y);
  const auto after_forward = counted->now;
  y.sum().backward();
  return {after_forward, counted->most};
}

}  // namespace

TEST_CASE("a part that is computed again leaves the same bits behind as one that is not") {
  for (const auto& test : kCases) {
    INFO(test.name);
    const auto expected = results(test, kOnce), found = results(test, kAgain);
    REQUIRE(found.size() == expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      INFO("result " << i);
      CHECK(found[i].dtype() == expected[i].dtype());
      CHECK(found[i].equal(expected[i]));
    }
  }
}

TEST_CASE("a function may have any tensors and results; a module is a function, too") {
  const auto a = torch::linspace(-1, 1, 4).requires_grad_(), b = torch::full({4}, .5).requires_grad_();
  const auto [sum, product] = recompute(
      [](const torch::Tensor& x, const torch::Tensor& y) { return std::tuple(x + y, x * y); }, a, b);
  (sum * product).sum().backward();
  CHECK(a.grad().equal((2 * a * b + b * b).detach()));
  CHECK(b.grad().equal((a * a + 2 * a * b).detach()));
  torch::nn::Sequential layers(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  const auto shared = layers.ptr();
  for (const auto& y : {recompute(layers, torch::eye(4)), recompute(shared, torch::eye(4))}) {
    y.pow(3).sum().backward();
  }
  CHECK(layers->buffers()[2].item<int64_t>() == 2);  // batches that were tracked
  CHECK(recompute([] { return torch::ones({2}); }).sum().item<int>() == 2);
}

TEST_CASE("a part runs once more per backward pass, as far as its last saved tensor") {
  int begun = 0, ended = 0;
  const auto x = torch::ones({3}).requires_grad_();
  const auto part = [&](const torch::Tensor& h) {
    ++begun;
    auto y = h.sin().tanh();
    ++ended;
    return y + 1;
  };
  const auto y = recompute(part, x).sum();
  CHECK(std::pair(begun, ended) == std::pair(1, 1));
  y.backward({}, /*retain_graph=*/true);
  CHECK(std::pair(begun, ended) == std::pair(2, 1));
  y.backward();
  CHECK(std::pair(begun, ended) == std::pair(3, 1));
  CHECK_THROWS_WITH(y.backward(), ContainsSubstring("backward through the graph a second time"));
  const torch::NoGradGuard no_grad;
  recompute(part, x);
  CHECK(std::pair(begun, ended) == std::pair(4, 2));
}

TEST_CASE("after forward only the blocks' outputs are kept, and one block's tensors during backward") {
  constexpr int64_t kTensor = 1024 * 64 * sizeof(float);
  const auto [kept, most] = bytes_of_blocks(/*again=*/false);
  const auto [kept_again, most_again] = bytes_of_blocks(/*again=*/true);
  CHECK(kept >= 36 * kTensor);
  CHECK(most >= 36 * kTensor);
  CHECK(kept_again >= 12 * kTensor);
  CHECK(kept_again < 13 * kTensor);
  CHECK(most_again <= 20 * kTensor);
}

TEST_CASE("a second run that saves other tensors, or would be wrong, ends backward") {
  struct Refused {
    std::string what;
    std::function<torch::Tensor(const torch::Tensor&, int run)> part;
  };
  const std::vector<Refused> refused = {
      {"tensor 0 that a recomputed part saves was Float [4, 6] on cpu, but is Float [3, 6] on cpu in its "
       "second run",
       [](const auto& x, int run) { return x.narrow(0, 0, 4 - run).tanh().sum(); }},
      {"a recomputed part saved 1 tensors, but 0 in its second run",
       [](const auto& x, int run) { return run == 0 ? x.tanh().sum() : x.sum(); }},
      {"a recomputed part runs a backward pass through what it has computed itself",
       [](const auto& x, int) { return torch::autograd::grad({x.tanh().sum()}, {x})[0].sum() + x.sum(); }},
      {"tensor 0 that a recomputed part has saved, Float [4, 6] on cpu, was changed in place before backward "
       "used it",
       [](const auto& x, int) {
         auto y = x * 1;
         const auto z = y.sin();
         y.add_(1);
         return z.tanh().sum();
       }},
      {"the part's own error",
       [](const auto& x, int run) {
         if (run > 0) throw UsageError("the part's own error");
         return x.tanh().sum();
       }},
  };
  for (const auto& [what, part] : refused) {
    const auto x = torch::ones({4, 6}).requires_grad_();
    int run = 0;
    CHECK(refusal_of([&, &part = part] {
            recompute([&](const torch::Tensor& h) { return part(h, run++); }, x).backward();
          }) == what);
  }
  const auto x = torch::ones({2}).requires_grad_();
  const auto in_place = [](const torch::Tensor& h) { return torch::Tensor(h).relu_().sin(); };
  CHECK_THROWS_WITH(recompute(in_place, x * 1).sum().backward(),
                    ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("an error leaves the thread as it was") {
  const auto x = torch::ones({2}).requires_grad_();
  CHECK_THROWS_AS(
      recompute([](const torch::Tensor&) -> torch::Tensor { throw std::runtime_error("early"); }, x),
      std::runtime_error);
  int run = 0;
  const auto late = [&](const torch::Tensor& h) {
    if (run++ > 0) throw std::runtime_error("late");
    return h.tanh();
  };
  CHECK_THROWS_WITH(recompute(late, x).sum().backward(), "late");
  CHECK_NOTHROW(x.sin().sum().backward());  // saves its tensor as usual
}
