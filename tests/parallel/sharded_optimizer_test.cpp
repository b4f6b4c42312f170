// ShardedOptimizer: the bits of torch's optimizers on whole parameters, on any layout of replicas.
#include <torch/optim/schedulers/step_lr.h>

#include <lockstep/tests/catch.h>

#include <lockstep/parallel/replica_workers.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>
#include <lockstep/tests/parallel/sharded_loops.h>

using namespace lockstep;
using namespace lockstep::testing;

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

TEST_CASE("parameters of several dtypes, complex ones too, are updated in one step as by torch's optimizer") {
  const auto numbers = [](int64_t count, double first, torch::ScalarType dtype) {
    return (torch::arange(count, torch::kFloat64) * .7 + first).sin().to(dtype);
  };
  const auto make = [&] {
    std::vector<torch::Tensor> params;
    for (const auto dtype : {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kComplexFloat}) {
      params.push_back(numbers(9'001, .1, dtype).requires_grad_());
      params.push_back(numbers(3, .2, dtype).requires_grad_());
    }
    return params;
  };
  const auto set_gradients = [&](const std::vector<torch::Tensor>& params, int step) {
    for (const auto& param : params) {
      param.mutable_grad() = numbers(param.numel(), step, param.scalar_type());
    }
  };
  const auto options = torch::optim::SGDOptions(.05).momentum(.9).weight_decay(.01);
  const auto expected = make();
  torch::optim::SGD sgd(expected, options);
  std::vector<std::vector<torch::Tensor>> found(3);
  for (auto& params : found) params = make();
  const std::vector<torch::Device> devices(3, torch::kCPU);
  ReplicaWorkers workers(devices, 1);
  const auto communicator = make_communicator({.devices = devices, .threads = 1});
  workers.run(*communicator, [&](int local, Endpoint& endpoint) {
    const auto& params = found[static_cast<size_t>(local)];
    ShardedOptimizer sharded(torch::optim::SGD(params, options), {.bucket_bytes = 20'000});
    for (int step = 0; step < 4; ++step) {
      set_gradients(params, step);
      sharded.step(endpoint);
    }
  });
  for (int step = 0; step < 4; ++step) {
    set_gradients(expected, step);
    sgd.step();
  }
  for (const auto& params : found) {
    for (size_t i = 0; i < params.size(); ++i) CHECK(params[i].equal(expected[i]));
  }
}
