#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>

#include <lockstep/tests/catch.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/replicas/loops.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using OptimizerPtr = std::unique_ptr<torch::optim::Optimizer>;
using MakeOptimizer = std::function<OptimizerPtr(std::vector<torch::Tensor>)>;

// Batch norm's averages, dropout's draws, an optimizer's state and a tensor of each replica: all go on.
struct Everything {
  explicit Everything(const MakeOptimizer& make)
      : net(torch::nn::Linear(3, 6), torch::nn::BatchNorm1d(6), torch::nn::Dropout(.3),
            torch::nn::Linear(6, 2)) {
    net->to(torch::kFloat64);
    optimizer = make(net->parameters());
  }
  torch::nn::Sequential net;
  OptimizerPtr optimizer;
  torch::Tensor memory = torch::zeros({2}, torch::kFloat64);
};

using Loop = Replicas<Everything>;

std::unique_ptr<Loop> new_loop(ReplicasOptions options, const MakeOptimizer& make) {
  auto loop = std::make_unique<Loop>(std::move(options), [&](Endpoint&) { return Everything(make); });
  loop->attach("net", &Everything::net);
  loop->keep("optimizer", &Everything::optimizer);
  loop->keep("memory", &Everything::memory);
  return loop;
}

void take_steps(Loop& loop, int64_t until) {
  while (loop.steps_taken() < until) {
    loop.step(some_rows(8, loop.steps_taken()), [](Everything& own, const Tuple& shard, Step& step) {
      const auto& [X, y] = shard;
      own.optimizer->zero_grad();
      const auto squares = (own.net->forward(X) + own.memory - y).square();
      (squares.sum() / step.rows()).backward();
      step.wait(own.net);
      own.optimizer->step();
      own.memory = own.memory + .01 * squares.detach().sum(0);
    });
  }
}

template <class Kind, class Options>
MakeOptimizer maker(Options options) {
  return [options](auto params) { return std::make_unique<Kind>(std::move(params), options); };
}

const std::pair<const char*, MakeOptimizer> kOptimizers[] = {
    {"SGD", maker<torch::optim::SGD>(torch::optim::SGDOptions(.05).momentum(.9))},
    {"Adam", maker<torch::optim::Adam>(torch::optim::AdamOptions(.01).amsgrad(true))},
    {"AdamW", maker<torch::optim::AdamW>(torch::optim::AdamWOptions(.01))},
    {"RMSprop", maker<torch::optim::RMSprop>(torch::optim::RMSpropOptions(.01).momentum(.9).centered(true))},
    {"Adagrad", maker<torch::optim::Adagrad>(torch::optim::AdagradOptions(.01))},
};

TrainState through_files(const TrainState& state) {
  const TempFolder folder;
  write_checkpoint(folder / "state", to_checkpoint(state));
  return read_train_state(read_checkpoint(folder / "state"));
}

torch::Tensor& named(std::vector<NamedTensor>& tensors, const std::string& name) {
  return std::ranges::find(tensors, name, &NamedTensor::name)->tensor;
}

// Parameters and buffers of each replica of this process.
torch::Tensor parameters_of(Loop& loop) {
  std::vector<torch::Tensor> copies(static_cast<size_t>(loop.local_size()));
  loop.run([&](Everything& own, Endpoint& endpoint) {
    copies[static_cast<size_t>(endpoint.rank() - loop.first_rank())] = flat_copy(*own.net);
  });
  return torch::cat(copies);
}

}  // namespace

TEST_CASE("a loop that goes on from a checkpoint gives the bits of one run, with each optimizer and layout") {
  for (const auto& [name, make] : kOptimizers) {
    for (const Layout& layout : {Layout{2}, Layout{1, 1}}) {
      INFO(name << " on " << text_of(layout) << " replicas");
      for (const auto same : on_layout(layout, [&, &make = make](const ReplicasOptions& options) {
             auto whole = new_loop(options, make);
             take_steps(*whole, 3);
             const auto state = whole->state();
             auto other = new_loop(options, make);  // whose weights are those of state from load() on
             other->load(other->is_first() ? through_files(state) : TrainState());
             take_steps(*whole, 6);
             take_steps(*other, 6);
             return char{parameters_of(*whole).equal(parameters_of(*other))};
           })) {
        CHECK(same);
      }
    }
  }
}

TEST_CASE("each part of a loop's state is in its checkpoint, under its name") {
  auto loop = new_loop(on_cpus(2), kOptimizers[1].second);
  take_steps(*loop, 2);
  const auto state = loop->state();
  const auto names_of = [](const std::vector<NamedTensor>& tensors) {
    std::vector<std::string> names;
    for (const auto& item : tensors) names.push_back(item.name);
    return names;
  };
  CHECK(state.steps == 2);
  CHECK(names_of(state.model) == std::vector<std::string>{"net.0.weight", "net.0.bias", "net.1.weight",
                                                          "net.1.bias", "net.3.weight", "net.3.bias",
                                                          "net.1.running_mean", "net.1.running_var",
                                                          "net.1.num_batches_tracked"});
  const auto optimizer = names_of(state.optimizer);
  for (const char* name : {"optimizer.lr", "optimizer.step.net.0.weight", "optimizer.exp_avg.net.3.bias",
                           "optimizer.max_exp_avg_sq.net.1.weight"}) {
    CHECK(std::ranges::count(optimizer, name) == 1);
  }
  REQUIRE(state.replicas.size() == 2);
  const auto buffers = names_of(state.replicas[1].buffers);
  for (const char* name : {"net.1.running_mean", ".kept.memory"})
    CHECK(std::ranges::count(buffers, name) == 1);
}

TEST_CASE("a state of something else is refused in every process, and changes nothing") {
  const auto& adam = kOptimizers[1].second;
  struct Case {
    const char* words;
    std::function<void(TrainState&)> change;
  };
  const Case cases[] = {
      {"net.0.weight", [](auto& state) { state.model.erase(state.model.begin()); }},
      {"net.0.weight is Float",
       [](auto& state) {
         auto& weight = named(state.model, "net.0.weight");
         weight = weight.to(torch::kFloat32);
       }},
      {"exp_avg_sq2",
       [](auto& state) { state.optimizer.back().name = "optimizer.exp_avg_sq2.net.0.weight"; }},
      {"not kept here",
       [](auto& state) {
         state.optimizer.push_back({"other.lr", torch::zeros({1})});
       }},
      {"no lr", [](auto& state) { state.optimizer.clear(); }},
      {"of step -1", [](auto& state) { state.steps = -1; }},
      {"net.1.running_mean has shape [3]",
       [](auto& state) { named(state.replicas[1].buffers, "net.1.running_mean") = torch::zeros({3}); }},
      {"no kept tensor 'memory'", [](auto& state) { state.replicas[1].buffers.pop_back(); }},
      {"a tensor that is not kept here",
       [](auto& state) {
         state.replicas[0].buffers.push_back({".kept.other", torch::zeros({1})});
       }},
      {"'memory' is Double [3] in the state, here it is Double [2]",
       [](auto& state) {
         named(state.replicas[1].buffers, ".kept.memory") = torch::zeros({3}, torch::kFloat64);
       }},
      {"3 replicas, here are 2", [](auto& state) { state.replicas.push_back(state.replicas.front()); }},
  };
  for (const auto& [words, change] : cases) {
    INFO(words);
    const auto found = on_layout({1, 1}, [&, &change = change](const ReplicasOptions& options) {
      auto loop = new_loop(options, adam);
      take_steps(*loop, 2);
      auto state = loop->state();
      if (loop->is_first()) change(state);
      const auto before = parameters_of(*loop);
      const auto refusal = refusal_of<WeightsError>([&] { loop->load(state); });
      const bool same = parameters_of(*loop).equal(before) && loop->steps_taken() == 2;
      take_steps(*loop, 3);  // it can be used afterwards
      return std::pair(refusal, same);
    });
    for (const auto& [refusal, same] : found) {
      CHECK_THAT(refusal, ContainsSubstring(words));
      CHECK(same);
    }
  }
}

TEST_CASE("a state with a tensor that has no values is refused in every process before it travels") {
  const std::function<std::pair<torch::Tensor, const char*>(const torch::Tensor&)> ways[] = {
      [](const torch::Tensor&) { return std::pair(torch::Tensor(), "is undefined"); },
      [](const torch::Tensor& weight) {
        return std::pair(torch::empty_like(weight, torch::kMeta), "has no values");
      },
      [](const torch::Tensor& weight) { return std::pair(weight.to_sparse(), "is sparse"); }};
  const auto layout = GENERATE(Layout{2}, Layout{1, 1});
  for (const auto& way : ways) {
    std::string what;
    const auto found = on_layout(layout, [&](const ReplicasOptions& options) {
      auto loop = new_loop(options, kOptimizers[0].second);
      take_steps(*loop, 1);
      auto state = loop->state();
      if (loop->is_first()) {
        auto& weight = named(state.model, "net.0.weight");
        std::tie(weight, what) = way(weight);
      }
      const auto refusal = refusal_of<WeightsError>([&] { loop->load(state); });
      take_steps(*loop, 2);  // it can be used afterwards
      return refusal;
    });
    CHECK(found[0] == "model.net.0.weight of the state " + what);
    if (found.size() > 1) CHECK(found[1] == "process 0 does not take the state that it was given");
  }
}

TEST_CASE("a kept tensor is loaded in place where there is one, and is undefined where it was saved so") {
  struct Recurrent {
    torch::nn::Sequential net = two_layers();
    torch::Tensor hidden, view;
  };
  const auto make = [] {
    auto loop = std::make_unique<Replicas<Recurrent>>(on_cpus(2));
    loop->attach(&Recurrent::net);
    loop->keep("hidden", &Recurrent::hidden);
    return loop;
  };
  const auto all = [](Replicas<Recurrent>& loop, const std::function<bool(Recurrent&, int rank)>& is_so) {
    std::atomic<bool> every = true;
    loop.run([&](Recurrent& own, Endpoint& endpoint) {
      if (!is_so(own, endpoint.rank())) every = false;
    });
    return every.load();
  };
  auto loop = make();
  const auto undefined = through_files(loop->state());
  loop->run([](Recurrent& own, Endpoint& endpoint) { own.hidden = torch::full({3}, endpoint.rank() + 1.); });
  const auto state = through_files(loop->state());
  const auto holds_own = [](Recurrent& own, int rank) {
    return own.hidden.equal(torch::full({3}, rank + 1.));
  };
  loop->run([](Recurrent& own, Endpoint&) {
    own.hidden.zero_();
    own.view = own.hidden.view({1, 3});
  });
  loop->load(state);
  CHECK(all(*loop, [&](Recurrent& own, int rank) {
    return holds_own(own, rank) && own.view.is_alias_of(own.hidden) && own.view[0].equal(own.hidden);
  }));

  auto other = make();
  other->load(state);
  CHECK(all(*other, holds_own));
  other->run([](Recurrent& own, Endpoint&) { own.hidden.zero_(); });
  loop->load(state);  // the tensors of other are copies
  CHECK(all(*loop, holds_own));
  other->load(undefined);
  CHECK(all(*other, [](Recurrent& own, int) { return !own.hidden.defined(); }));
}

TEST_CASE("a state of another number of replicas gives all of them rank 0's buffers and generators") {
  struct Net {
    torch::nn::BatchNorm1d norm{2};
  };
  Replicas<Net> two(on_cpus(2));
  two.attach(&Net::norm);
  two.run([](Net& own, Endpoint& endpoint) { own.norm->running_mean.fill_(endpoint.rank() + 1); });
  torch::manual_seed(4);
  const auto state = through_files(two.state());
  const auto drawn = torch::rand({3});
  Replicas<Net> three(on_cpus(3));
  three.attach(&Net::norm);
  torch::manual_seed(9);
  three.load(state);
  CHECK(torch::rand({3}).equal(drawn));
  std::vector<double> means(3);
  three.run([&](Net& own, Endpoint& endpoint) {
    means[static_cast<size_t>(endpoint.rank())] = own.norm->running_mean.mean().item<double>();
  });
  CHECK(means == std::vector<double>{1, 1, 1});
}

TEST_CASE("ranks that differ in what they take refuse a state together") {
  struct Own {
    torch::nn::Sequential net = two_layers();
    torch::Tensor hidden = torch::zeros({2});
  };
  const auto found = on_layout({1, 1}, [](const ReplicasOptions& options) {
    Replicas<Own> loop(options);
    loop.attach(&Own::net);
    loop.keep("hidden", &Own::hidden);
    const auto state = loop.state();
    loop.run([](Own& own, Endpoint& endpoint) {
      if (endpoint.rank() == 1) own.hidden = torch::zeros({5});
    });
    return refusal_of<WeightsError>([&] { loop.load(state); });
  });
  CHECK(found[0] == "rank 1 does not take the state: " + found[1]);
  CHECK_THAT(found[1], ContainsSubstring("'hidden' is Float [2] in the state, here it is Float [5]"));
}

TEST_CASE("names that could not be told apart in a checkpoint are refused, others are not") {
  struct Two {
    torch::nn::Sequential kept = two_layers(), b = two_layers();
    torch::optim::SGD sgd{kept->parameters(), .1}, other{b->parameters(), .1};
    torch::Tensor weight = torch::zeros({1});
  };
  Replicas<Two> loop(on_cpus(1));
  loop.attach("kept", &Two::kept);  // a checkpoint tells its buffers from kept tensors
  CHECK_THAT(refusal_of([&] { loop.attach("kept.b", &Two::b); }),
             ContainsSubstring("'kept.b' after one with the name 'kept'"));
  CHECK_THAT(refusal_of([&] { loop.attach(".b", &Two::b); }), ContainsSubstring("'.b'"));
  loop.attach("keptb", &Two::b);
  loop.keep("sgd.g", &Two::sgd);
  CHECK_THAT(refusal_of([&] { loop.keep("sgd", &Two::other); }),
             ContainsSubstring("'sgd' after one with the name 'sgd.g'"));
  loop.keep("sgd.d", &Two::other);
  loop.keep("weight", &Two::weight);
  loop.load(through_files(loop.state()));
}

TEST_CASE("an optimizer whose state is unknown, or with other parameters, is refused") {
  const auto lbfgs = maker<torch::optim::LBFGS>(torch::optim::LBFGSOptions(1));
  CHECK_THAT(refusal_and_hint([&] { new_loop(on_cpus(1), lbfgs); }),  // by keep()
             ContainsSubstring("cannot hold the state of this optimizer") && ContainsSubstring("AdamW"));
  const MakeOptimizer other = [](auto) {
    return std::make_unique<torch::optim::SGD>(std::vector{torch::ones({1}, torch::requires_grad())}, .1);
  };
  const auto loop = new_loop(on_cpus(2), other);
  CHECK_THAT(refusal_of([&] { loop->state(); }),
             ContainsSubstring("'optimizer' has a parameter of no attached module"));
  loop->barrier();  // it can be used afterwards
}
