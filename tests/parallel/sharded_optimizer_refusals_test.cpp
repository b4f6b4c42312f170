// Optimizers, parameters and replicas that a ShardedOptimizer refuses.
#include <torch/optim/lbfgs.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <string>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/sharded_loops.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE(
    "optimizers whose steps read more than an element are refused by name, and so is what cannot be cut") {
  struct Own : torch::optim::Adam {
    using Adam::Adam;
  };
  Shapes net(torch::kFloat32);
  const auto twice = std::vector{net->gain, net->shift, net->gain};
  struct Case {
    const char* words;
    std::function<void()> build;
  };
  const Case cases[] = {
      {"LBFGS cannot be sharded: its step computes the loss several times",
       [&] { ShardedOptimizer(torch::optim::LBFGS(net->parameters(), 1.)); }},
      {"Own cannot be sharded", [&] { ShardedOptimizer(Own(net->parameters())); }},
      {"no optimizer", [&] { ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer>()); }},
      {"parameter 2 of group 0 (Float [1]) is given twice",
       [&] { ShardedOptimizer(torch::optim::SGD(twice, .1)); }},
      {"a bucket of 0 bytes",
       [&] { ShardedOptimizer(torch::optim::SGD(net->parameters(), .1), {.bucket_bytes = 0}); }},
  };
  for (const auto& [words, build] : cases) {
    INFO(words);
    const auto refusal = refusal_and_hint(build);
    CHECK_THAT(refusal, ContainsSubstring(words));
  }
  CHECK_THAT(refusal_and_hint(cases[0].build), ContainsSubstring("SGD, Adam, AdamW, RMSprop and Adagrad"));
}

namespace {

// Parameters with gradients, and an optimizer of theirs.
struct Bare {
  explicit Bare(std::vector<torch::Tensor> given, double lr = .1, double momentum = 0)
      : params(std::move(given)),
        sgd(torch::optim::SGD(params, torch::optim::SGDOptions(lr).momentum(momentum))) {
    for (const auto& param : params) param.mutable_grad() = torch::ones_like(param);
  }
  std::vector<torch::Tensor> params;
  ShardedOptimizer sgd;
};

torch::Tensor ones(const std::vector<int64_t>& sizes) { return torch::ones(sizes, torch::requires_grad()); }

}  // namespace

TEST_CASE("what would train replicas apart, or not at all, is refused on every replica with both values") {
  using Build = std::function<Bare(int rank)>;
  using Change = std::function<void(Bare & own, int rank)>;  // before the second step
  struct Case {
    const char* words;
    Build build;
    Change change = {};
  };
  const Build alike = [](int) { return Bare({ones({3}), ones({2, 5})}, .1, .5); };
  const Case cases[] = {
      {"rank 1 has parameter 0 of group 0 (Float [4]) where rank 0 has parameter 0 of group 0 (Float [3])",
       [](int rank) { return Bare({ones({3 + rank})}); }},
      {"rank 1 has nothing more where rank 0 has parameter 1 of group 0 (Float [2])",
       [](int rank) {
         return rank == 0 ? Bare({ones({3}), ones({2})}) : Bare({ones({3})});
       }},
      {"values with the hash",
       [](int rank) { return Bare({(ones({3}) * (rank + 1)).detach().requires_grad_()}); }},
      {"rank 1 has group 0: lr 0.2, momentum 0",
       [](int rank) { return Bare({ones({3})}, rank == 0 ? .1 : .2); }},
      {"rank 1 has group 0: lr 0.1, momentum 0.9",
       [](int rank) { return Bare({ones({3})}, .1, rank == 0 ? .8 : .9); }},
      {"has gaps in its memory, strides [10]",
       [](int rank) {  // the others wait for it
         const auto whole = torch::ones({3, 10});
         return Bare({(rank == 1 ? whole.select(1, 0) : torch::ones({3})).detach().requires_grad_()});
       }},
      {"parameter 0 of group 0 (Float [5]) and parameter 1 of group 0 (Float [3]) are two parameters in the "
       "same",
       [](int) {
         const auto whole = torch::ones({5});
         return Bare({whole.detach().requires_grad_(), whole.slice(0, 2).detach().requires_grad_()});
       }},
      {"the learning rate of group 0 is 0.3 on rank 1, 0.1 on rank 0", alike,
       [](Bare& own, int rank) {
         if (rank == 1) own.sgd.param_groups()[0].options().set_lr(.3);
       }},
      {"rank 1 has other options than rank 0", alike,
       [](Bare& own, int rank) {
         auto& options = static_cast<torch::optim::SGDOptions&>(own.sgd.param_groups()[0].options());
         if (rank == 1) options.momentum(.6);
       }},
      {"rank 1 has gradients of other parameters than rank 0", alike,
       [](Bare& own, int rank) {
         if (rank == 1) own.params[1].mutable_grad().reset();
       }},
      {"parameter 1 of group 0 (Float [2, 5]) is sparse", alike,
       [](Bare& own, int rank) {
         if (rank == 1) own.params[1].mutable_grad() = torch::ones({2, 5}).to_sparse();
       }},
      {"(Double [3]) has another shape, dtype, device", alike,
       [](Bare& own, int) {
         own.params[0].mutable_grad().reset();
         own.params[0].set_data(own.params[0].data().to(torch::kFloat64));
       }},
  };
  for (const auto& [words, build, change] : cases) {
    for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(words << ", " << text_of(layout) << " replicas");
      const auto found =
          on_layout(layout, [&, &build = build, &change = change](const ReplicasOptions& options) {
            Replicas<Bare> loop(options, [&](Endpoint& endpoint) { return build(endpoint.rank()); });
            try {
              loop.run([&](Bare& own, Endpoint& endpoint) {
                own.sgd.step(endpoint);
                if (!change) return;
                change(own, endpoint.rank());
                own.sgd.step(endpoint);
              });
            } catch (const UsageError& error) {
              return error.message();
            } catch (const PeerError&) {  // another process has found it first
              return std::string("peer");
            }
            return std::string();
          });
      CHECK_THAT(found[0] == "peer" ? found.back() : found[0], ContainsSubstring(words));
      for (const auto& message : found) CHECK_FALSE(message.empty());
    }
  }
}

TEST_CASE("a sharded optimizer belongs to one rank: its state carries it to another world") {
  ShardedOptimizer* kept = nullptr;
  Replicas<Bare> two(on_cpus(2), [](Endpoint&) { return Bare({ones({3})}); });
  two.run([&](Bare& own, Endpoint& endpoint) {
    own.sgd.step(endpoint);
    if (endpoint.rank() == 1) kept = &own.sgd;
  });
  Replicas<Bare> one(on_cpus(1), [](Endpoint&) { return Bare({ones({3})}); });
  CHECK(refusal_of([&] { one.run([&](Bare&, Endpoint& endpoint) { kept->step(endpoint); }); }) ==
        "a ShardedOptimizer of rank 1 of 2 was used by rank 0 of 1");
}
