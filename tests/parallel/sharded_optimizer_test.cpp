// ShardedOptimizer: the bits of torch's optimizers on whole parameters, on any layout of replicas.
#include <torch/optim/lbfgs.h>
#include <torch/optim/schedulers/step_lr.h>

#include <lockstep/tests/catch.h>

#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>
#include <lockstep/tests/parallel/sharded_loops.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int kSteps = 20;

template <class T>
torch::Tensor trained_weights(const ReplicasOptions& options, const ShardedCase& kind) {
  auto loop = loop_of<T>(options, kind);
  train_until(*loop, kSteps, kind);
  return weights_of(*loop, &T::net);
}

void check_same_bits(const ShardedCase& kind, const Layout& layout) {
  INFO(kind.name << ", " << text_of(layout) << " replicas");
  const auto run = [&](auto train) {
    return on_layout(layout, [&](const ReplicasOptions& options) { return train(options, kind); });
  };
  const auto expected = run(trained_weights<Unsharded>), found = run(trained_weights<Sharded>);
  for (const auto& weights : found) CHECK(weights.equal(expected.front()));
  CHECK_FALSE(expected.front().equal(flat_copy(*Shapes(kind.dtype))));
}

std::vector<torch::optim::OptimizerParamGroup> two_groups(ShapesImpl& net) {
  std::vector<torch::Tensor> matrices, others;
  for (const auto& param : net.parameters()) (param.dim() == 2 ? matrices : others).push_back(param);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(matrices, std::make_unique<torch::optim::AdamWOptions>(
                                    torch::optim::AdamWOptions(.003).weight_decay(.1)));
  groups.emplace_back(others, std::make_unique<torch::optim::AdamWOptions>(
                                  torch::optim::AdamWOptions(.02).weight_decay(0.).amsgrad(true)));
  return groups;
}

const std::vector<ShardedCase> kSettings = {
    {"two groups", [](ShapesImpl& net) { return std::make_unique<torch::optim::AdamW>(two_groups(net)); }},
    {"fp64", maker_of<torch::optim::Adam>(torch::optim::AdamOptions(.01)), torch::kFloat64},
    {"bf16, Adam", maker_of<torch::optim::Adam>(torch::optim::AdamOptions(.01)), torch::kBFloat16},
    {"bf16, SGD", maker_of<torch::optim::SGD>(torch::optim::SGDOptions(.05).momentum(.9).weight_decay(.01)),
     torch::kBFloat16},
    {"clipped", maker_of<torch::optim::Adam>(torch::optim::AdamOptions(.01)), torch::kFloat32, .1},
    {"one parameter",
     [](ShapesImpl& net) {
       return std::make_unique<torch::optim::SGD>(std::vector{net.gain},
                                                  torch::optim::SGDOptions(.1).momentum(.9));
     }},
};

}  // namespace

TEST_CASE(
    "a sharded optimizer has the bits of torch's on 1 to 8 replicas: SGD, Adam, AdamW, RMSprop, Adagrad") {
  for (const auto& kind : kShardedKinds) {
    for (const int world : {1, 2, 3, 5, 8}) check_same_bits(kind, {world});
  }
}

TEST_CASE(
    "a sharded optimizer has the bits of torch's: groups, dtypes, clipping, fewer elements than replicas") {
  for (const auto& kind : kSettings) {
    for (const Layout& layout : {Layout{2}, Layout{5}, Layout{1, 1}}) check_same_bits(kind, layout);
  }
}

TEST_CASE("a sharded optimizer has the bits of torch's in several processes") {
  for (const auto& kind : kShardedKinds) {
    for (const Layout& layout : {Layout{1, 1}, Layout{2, 1}, Layout{1, 3, 2}}) check_same_bits(kind, layout);
  }
}

TEST_CASE("a sharded optimizer has the bits of torch's over Gloo") {
  const auto& kind = kShardedKinds[3];  // Adam
  std::vector<torch::Tensor> found(2), expected(2);
  run_joined(2, [&](int process, ProcessGroup& group) {
    const auto options = on_cpus(process + 1, shared(group));  // 1 + 2 replicas
    found[static_cast<size_t>(process)] = trained_weights<Sharded>(options, kind);
    expected[static_cast<size_t>(process)] = trained_weights<Unsharded>(options, kind);
  });
  for (const auto& weights : found) CHECK(weights.equal(expected[0]));
}

TEST_CASE("a sharded optimizer goes on with an optimizer that has stepped, and with torch's scheduler") {
  const auto& kind = kShardedKinds[4];  // Adam with amsgrad
  const auto train = [&](bool sharded) {
    struct Own {
      explicit Own(const ShardedCase& of) : net(of.dtype), adam(of.make(*net)) {}
      Shapes net;
      OptimizerHolder adam;
      std::unique_ptr<ShardedOptimizer> sharded_adam;
      std::unique_ptr<torch::optim::StepLR> schedule;
    };
    Replicas<Own> loop(on_cpus(3), [&](Endpoint&) { return Own(kind); });
    loop.attach(&Own::net);
    for (int i = 0; i < 8; ++i) {
      loop.step(Pair(torch::ones({6, 90}) * i, torch::zeros({6, 3})), [&](Own& own, const Tuple& shard,
                                                                          Step& step) {
        own.net->zero_grad();
        const auto& [X, y] = shard;
        ((own.net->forward(X) - y).square().sum() / step.rows()).backward();
        step.wait();
        if (i == 3) {  // from here on
          if (sharded) own.sharded_adam = std::make_unique<ShardedOptimizer>(std::move(own.adam));
          auto& given = sharded ? own.sharded_adam->optimizer() : *own.adam;
          own.schedule = std::make_unique<torch::optim::StepLR>(given, /*step_size=*/2, /*gamma=*/.5);
        }
        if (own.sharded_adam) {
          own.sharded_adam->step(step);
        } else {
          own.adam->step();
        }
        if (own.schedule) own.schedule->step();
      });
    }
    return weights_of(loop, &Own::net);
  };
  CHECK(train(true).equal(train(false)));
}

TEST_CASE(
    "parameters that are frozen, unfrozen, without gradients or in other memory train as with torch's") {
  const auto train = []<class T>(const Layout& layout) {
    const ShardedCase kind{"", maker_of<torch::optim::AdamW>(torch::optim::AdamWOptions(.01))};
    return on_layout(layout, [&](const ReplicasOptions& options) {
      auto loop = std::make_unique<Replicas<T>>(options, [&](Endpoint&) { return T(kind); });
      loop->run([](T& own, Endpoint&) { own.net->middle.requires_grad_(false); });
      loop->attach("net", &T::net);
      train_until(*loop, 3, kind);
      loop->run([](T& own, Endpoint&) { own.net->outer.set_data(own.net->outer.data().clone()); });
      train_until(*loop, 5, kind);
      const auto before = weights_of(*loop, &T::net);
      // Each parameter has a gradient once; those of the others are dropped before the update.
      loop->run([](T& own, Endpoint& endpoint) {
        own.zero_grad();
        own.net->middle.mutable_grad() = torch::ones_like(own.net->middle);
        own.net->gain.mutable_grad() = torch::ones_like(own.net->gain);
        own.update(endpoint);
        own.update(endpoint);
      });
      return std::pair(before, weights_of(*loop, &T::net));
    });
  };
  for (const Layout& layout : {Layout{3}, Layout{1, 1}}) {
    const auto expected = train.operator()<Unsharded>(layout), found = train.operator()<Sharded>(layout);
    for (const auto& [before, after] : found) {
      CHECK(before.equal(expected[0].first));
      CHECK(after.equal(expected[0].second));
      CHECK_FALSE(before.equal(after));
    }
  }
}

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
       [](int) {
         return Bare({torch::ones({3, 10}).select(1, 0).detach().requires_grad_()});
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
       [](Bare& own, int) {
         own.params[1].mutable_grad() = torch::ones({2, 5}).to_sparse();
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
