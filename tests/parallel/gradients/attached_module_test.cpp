// GradientSync and what a user does to the module after attach(): freezes and unfreezes parameters, converts
// them, ties weights, registers others.
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/gradients/sync_world.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// y = a b, with a buffer that each rank keeps for itself.
class PairImpl : public torch::nn::Module {
 public:
  PairImpl() {
    a = register_parameter("a", torch::full({1}, .5));
    b = register_parameter("b", torch::ones({1}), /*requires_grad=*/false);
    seen = register_buffer("seen", torch::zeros({1}));
  }
  torch::Tensor a, b, seen;
};

float value_of(const torch::Tensor& tensor) { return tensor.item<float>(); }

// y = the sum of its parameters, in which another may be registered at any time.
class GrowingImpl : public torch::nn::Module {
 public:
  GrowingImpl() { a = register_parameter("a", torch::ones({2})); }
  torch::Tensor loss() {
    auto sum = torch::zeros({});
    for (const auto& param : parameters()) sum = sum + param.sum();
    return sum;
  }
  torch::Tensor a;
};

}  // namespace

TEST_CASE("a parameter that is registered, or replaced, after attach() is refused by name") {
  struct Case {
    const char* what;
    std::function<void(GrowingImpl&)> change;
  };
  const Case cases[] = {
      {"parameter b was registered after attach()",
       [](auto& net) { net.register_parameter("b", torch::ones({3})); }},
      {"parameter head.weight was registered after attach()",
       [](auto& net) { net.register_module("head", torch::nn::Linear(2, 1)); }},
      {"parameter old.weight was registered after attach()",
       [](auto& net) { net.replace_module("old", torch::nn::Linear(2, 1)); }},
      {"parameter old.weight was replaced or removed after attach()",
       [](auto& net) { net.unregister_module("old"); }},
  };
  for (const auto& [what, change] : cases) {
    for (const bool again : {false, true}) {
      const auto errors = refusals(2, [&, change = change](int rank, Endpoint& endpoint) {
        GrowingImpl net;
        net.register_module("old", torch::nn::Linear(2, 1));
        GradientSync sync(endpoint, {.unused = UnusedParameters::kZero});
        sync.attach(net);
        net.loss().backward();
        sync.wait();
        change(net);
        if (again) return sync.attach(net);
        net.loss().backward();
        if (rank == 0) return sync.allreduce_all();
        sync.wait();
      });
      for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring(what));
    }
  }
}

TEST_CASE("a sparse or quantized buffer is refused by name") {
  const auto sparse = torch::eye(3).to_sparse();
  const auto quantized = torch::quantize_per_tensor(torch::ones({3}), .1, 0, torch::kQInt8);
  for (const auto& [buffer, what] :
       {std::pair{sparse, "graph is a sparse tensor"}, {quantized, "graph is a quantized tensor"}}) {
    const auto errors = refusals(2, [&, buffer = buffer](int, Endpoint& endpoint) {
      GrowingImpl net;
      net.register_buffer("graph", buffer.clone());
      GradientSync(endpoint).attach(net);
    });
    for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring(what));
  }
}

// The gradient of b is a share of each rank: 1 and 2, which add up to 3, and 1 - .1 x 3 = .7.
TEST_CASE("a parameter that is unfrozen is summed after another attach(), which keeps values and buffers") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const auto found = by_rank(2, [&](int rank, Endpoint& endpoint) -> std::vector<float> {
    PairImpl net;
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 1});
    sync.attach(net);
    torch::optim::SGD sgd(net.parameters(), torch::optim::SGDOptions(.1).momentum(.9));
    const auto step = [&] {
      sgd.zero_grad();
      ((net.a + net.b) * static_cast<float>(rank + 1)).sum().backward();
      sync.wait();
      sgd.step();
    };
    net.seen.fill_(rank);
    step();  // a: .5 - .1 x 3
    net.b.requires_grad_(true);
    sync.attach(net);
    if (sync.names() != std::vector<std::string>{"a", "b"}) return {};
    step();  // a: .2 - .1 x (.9 x 3 + 3); b: 1 - .1 x 3
    const float grad = value_of(net.b.grad());
    net.a.requires_grad_(false);
    sync.attach(net);
    if (net.a.grad().defined()) return {};
    step();  // a stays, despite its momentum; b: .7 - .1 x (.9 x 3 + 3)
    return {grad, value_of(net.a), value_of(net.b), value_of(net.seen)};
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto& own = found[static_cast<size_t>(rank)];
    REQUIRE(own.size() == 4);
    CHECK(own[0] == 3);
    CHECK(own[1] == Approx(-.37));
    CHECK(own[2] == Approx(.13));
    CHECK(own[3] == static_cast<float>(rank));
  }
  CHECK(found[0][1] == found[1][1]);
  CHECK(found[0][2] == found[1][2]);
}

TEST_CASE("wait() and allreduce_all() name a parameter that has changed since attach()") {
  struct Change {
    std::function<void(PairImpl&)> action;
    std::string says;
  };
  const std::vector<Change> changes = {
      {[](auto& net) { net.b.requires_grad_(true); }, "parameter b was unfrozen after attach()"},
      {[](auto& net) { net.a.requires_grad_(false); }, "parameter a was frozen after attach()"},
      {[](auto& net) { net.to(torch::kFloat64); },
       "parameter a is Double [1] on cpu, but was Float [1] on cpu at attach()"},
      {[](auto& net) {
         net.a.set_data(torch::zeros({2, 3}));
       },
       "parameter a is Float [2, 3] on cpu, but was Float [1] on cpu at attach()"},
      {[](auto& net) { net.a.set_data(net.a.detach().clone()); }, ""},  // no GradientSync minds
      {[](auto& net) { net.b.set_data(torch::zeros({2})); }, ""},       // not trained
  };
  const bool replayed = GENERATE(false, true);
  for (const auto& change : changes) {
    INFO(change.says);
    const auto errors = refusals(2, [&](int, Endpoint& endpoint) {
      PairImpl net;
      GradientSync sync(endpoint, {.unused = UnusedParameters::kZero});
      sync.attach(net);
      change.action(net);
      replayed ? sync.allreduce_all() : sync.wait();
    });
    for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring(change.says));
    if (change.says.empty()) CHECK(errors == std::vector<std::string>(2));
  }
}

TEST_CASE(
    "attach() again is refused for another module, between backward and wait(), and where ranks differ") {
  using Task = std::function<void(int rank, GradientSync&, PairImpl& net)>;
  const std::pair<Task, const char*> cases[] = {
      {[](int, auto& sync, auto&) {
         PairImpl other;
         sync.attach(other);
       },
       "this GradientSync is attached to a module already"},
      {[](int, auto& sync, auto& net) {
         net.a.sum().backward();
         sync.attach(net);
       },
       "attach() was called between a backward pass and wait()"},
      {[](int rank, auto& sync, auto& net) {
         if (rank < 2) net.b.requires_grad_(true);
         sync.attach(net);
       },
       "the models differ: rank 2 has b [1] Float, frozen where rank 0 has b [1] Float"}};
  for (const auto& [task, words] : cases) {
    const auto errors = refusals(3, [&, &again = task](int rank, Endpoint& endpoint) {
      PairImpl net;
      GradientSync sync(endpoint, {.mode = SyncMode::kBucketed});
      sync.attach(net);
      again(rank, sync, net);
    });
    for (const auto& error : errors) CHECK_THAT(error, ContainsSubstring(words));
  }
}

TEST_CASE("attach() again is refused while gradients of micro-batches have not been summed") {
  using Action = std::function<void(PairImpl&, GradientSync&)>;
  const Action micro_batch = [](auto& net, auto& sync) {
    const auto no_sync = sync.no_sync();
    net.a.sum().backward();
  };
  const Action dropped = [](auto& net, auto&) { net.zero_grad(); };
  const Action zeroed = [](auto& net, auto&) { net.zero_grad(/*set_to_none=*/false); };
  const Action summed = [](auto& net, auto& sync) {
    net.a.sum().backward();
    sync.wait();
  };
  struct Case {
    std::string name;
    std::vector<Action> actions;
    bool refused;
  };
  const Case cases[] = {{"not summed", {micro_batch}, true},
                        {"not summed, in tensors of their own", {dropped, micro_batch}, true},
                        {"dropped", {micro_batch, dropped}, false},
                        {"zeroed", {micro_batch, zeroed}, false},
                        {"summed", {micro_batch, summed}, false}};
  for (const auto& one : cases) {
    INFO(one.name);
    const auto errors = refusals(2, [&](int, Endpoint& endpoint) {
      PairImpl net;
      GradientSync sync(endpoint);
      sync.attach(net);
      for (const auto& action : one.actions) action(net, sync);
      sync.attach(net);
    });
    for (const auto& error : errors) {
      CHECK(error.empty() == !one.refused);
      if (one.refused) CHECK_THAT(error, ContainsSubstring("between a backward pass and wait()"));
    }
  }
}

TEST_CASE("a layer that is registered twice has one gradient, under its first name") {
  const auto mode = GENERATE_COPY(from_range(kModes));
  const auto wrong = by_rank(2, [&](int rank, Endpoint& endpoint) {
    std::string what;
    torch::nn::Module net;
    const torch::nn::Linear layer(2, 2);
    net.register_module("enc", layer.ptr());
    net.register_module("dec", layer.ptr());
    net.register_buffer("mean", torch::full({1}, rank));
    GradientSync sync(endpoint, {.mode = mode, .bucket_bytes = 1});
    sync.attach(net);
    if (sync.names() != std::vector<std::string>{"enc.weight", "enc.bias"}) what += "other names; ";
    torch::nn::Linear plain(2, 2);  // the same in plain torch, over both ranks
    {
      const torch::NoGradGuard no_grad;
      plain->weight.copy_(layer->weight);
      plain->bias.copy_(layer->bias);
    }
    const auto loss = [](const torch::nn::Linear& own, int of_rank) {
      auto linear = own;
      return linear(linear(torch::full({1, 2}, of_rank + 1.F))).sum();
    };
    loss(layer, rank).backward();
    sync.wait();
    for (int other = 0; other < 2; ++other) loss(plain, other).backward();
    if (!layer->weight.grad().allclose(plain->weight.grad())) what += "another weight gradient; ";
    if (!layer->bias.grad().allclose(plain->bias.grad())) what += "another bias gradient; ";
    return what;
  });
  CHECK(wrong == std::vector<std::string>(2));
}
