// States of Trainers with TrainerOptions::shard, and what they keep in memory.
#include <torch/nn/modules/linear.h>

#include <lockstep/tests/catch.h>

#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/sharded_runs.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/counting_allocator.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr Shard kAll[] = {Shard::kNone, Shard::kOptimizer, Shard::kGradients};

TrainerOptions adamw(int world, Shard shard) {
  auto options = sharded_options(world);
  options.lr.lr = .003;
  options.replica.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  options.ema = .9;
  options.shard = shard;
  return options;
}

void train(Trainer& trainer, int steps) {
  for (int step = 0; step < steps; ++step)
    trainer.step(kBatches[static_cast<size_t>(step) % kBatches.size()]);
}

TrainState state_of(int world, Shard shard) {
  auto trainer = make_trainer(wide_layers(), adamw(world, shard));
  train(trainer, 7);
  return trainer.state();
}

void check_same_states(const TrainState& found, const TrainState& expected) {
  check_same_tensors(found.model, expected.model);
  check_same_tensors(found.optimizer, expected.optimizer);
  check_same_tensors(found.average, expected.average);
}

// The trainers that go on from a state.
TrainState continued(const TrainState& state, int world, Shard shard) {
  auto trainer = make_trainer(wide_layers(), adamw(world, shard));
  trainer.load(state);
  train(trainer, 3);
  return trainer.state();
}

}  // namespace

TEST_CASE("weights, optimizer and average of a state lie in the memory that it is given") {
  for (const auto shard : kAll) {
    INFO("shard " << name_of(kShardNames, shard));
    auto trainer = make_trainer(wide_layers(), adamw(2, shard));
    train(trainer, 2);
    std::unordered_set<const void*> given;
    const auto state = trainer.state([&](torch::IntArrayRef shape, torch::ScalarType dtype) {
      const auto tensor = torch::empty(shape, dtype);
      given.insert(tensor.const_data_ptr());
      return tensor;
    });
    size_t count = 0;
    for (const auto* part : {&state.model, &state.optimizer, &state.average}) {
      for (const auto& [name, tensor] : *part) {
        INFO(name);
        CHECK(given.contains(tensor.const_data_ptr()));
        ++count;
      }
    }
    CHECK(count == 6 + 13 + 6);
    CHECK(given.size() == count);
    check_same_states(state, trainer.state());
  }
}

TEST_CASE("a sharded state is the unsharded one, whole, on any number of replicas") {
  for (const int world : {1, 2, 5}) {
    const auto expected = state_of(world, Shard::kNone);
    CHECK(expected.optimizer.size() == 13);
    for (const auto shard : kAll) {
      INFO(world << " replicas, shard " << name_of(kShardNames, shard));
      check_same_states(state_of(world, shard), expected);
    }
  }
}

TEST_CASE("states go on with and without shards, on other numbers of replicas") {
  for (const auto saved : kAll) {
    const auto state = state_of(4, saved);
    for (const int world : {4, 2, 1}) {
      const auto expected = continued(state, world, Shard::kNone);
      for (const auto shard : kAll) {
        INFO(name_of(kShardNames, saved) << " on " << world << ", " << name_of(kShardNames, shard));
        check_same_states(continued(state, world, shard), expected);
      }
    }
  }
}

TEST_CASE("processes go on from a sharded state of process 0") {
  const auto state = state_of(3, Shard::kOptimizer);
  const auto expected = in_processes({2, 1}, adamw(1, Shard::kNone), [&](int process, const auto& options) {
    auto trainer = make_trainer(wide_layers(), options);
    trainer.load(process == 0 ? state : TrainState{});
    train(trainer, 3);
    return trainer.state();
  });
  const auto found = in_processes({2, 1}, adamw(1, Shard::kGradients), [&](int process, const auto& options) {
    auto trainer = make_trainer(wide_layers(), options);
    trainer.load(process == 0 ? state : TrainState{});
    train(trainer, 3);
    return trainer.state();
  });
  check_same_states(found.front(), expected.front());
  CHECK(found.back().optimizer.empty());
}

TEST_CASE("frozen parameters have no parts, and what stays trained keeps its state") {
  const auto run = [](Shard shard) {
    auto trainer = make_trainer(wide_layers(), adamw(3, shard));
    const auto freeze = [&](const std::string& name, bool frozen) {
      for (int local = 0; local < trainer.local_size(); ++local) {
        trainer.model(local).module->named_parameters()[name].requires_grad_(!frozen);
      }
    };
    train(trainer, 3);
    freeze("inner", true);
    train(trainer, 3);
    freeze("inner", false);
    freeze("outer_bias", true);
    train(trainer, 3);
    return trainer.state();
  };
  const auto expected = run(Shard::kNone);
  for (const auto shard : {Shard::kOptimizer, Shard::kGradients}) check_same_states(run(shard), expected);
}

TEST_CASE("a state that is refused before the first step leaves all ranks alike") {
  for (const auto shard : {Shard::kOptimizer, Shard::kGradients}) {
    auto trainer = make_trainer(wide_layers(), adamw(3, shard));
    auto other = state_of(3, Shard::kNone);
    other.optimizer.pop_back();
    CHECK_THROWS_AS(trainer.load(other), WeightsError);
    for (int local = 0; local < trainer.local_size(); ++local) {
      trainer.model(local).module->named_parameters()["inner"].requires_grad_(false);
    }
    train(trainer, 2);  // what is kept is gathered, if there is any, by all ranks
    CHECK(trainer.steps_taken() == 2);
  }
}

namespace {

// 5,046,282 parameters, in a network that computes little.
class LargeLayersImpl : public torch::nn::Module {
 public:
  LargeLayersImpl() {
    for (int i = 0; i < 4; ++i) {
      const auto name = std::to_string(i);
      layers_.push_back(register_module("layer" + name, torch::nn::Linear(i == 0 ? 784 : 1100, 1100)));
    }
    last_ = register_module("last", torch::nn::Linear(1100, 10));
  }
  torch::Tensor forward(torch::Tensor X) {
    X = X.flatten(1);
    for (auto& layer : layers_) X = layer(X).relu();
    return last_(X);
  }

 private:
  std::vector<torch::nn::Linear> layers_;
  torch::nn::Linear last_ = nullptr;
};

constexpr int64_t kLargeWeights = 4 * (784 * 1100 + 3 * 1100 * 1100 + 4 * 1100 + 1100 * 10 + 10);  // bytes
constexpr int64_t kLargeBucket = 4 * 1100 * 1100;  // a layer's weight is larger than the bound

// With AdamW, after a step.
std::unique_ptr<Trainer> large_trainer(int world, Shard shard) {
  auto options = options_for(world);
  options.replica.optimizer.kind = OptimizerKind::kAdamW;
  options.replica.sync.bucket_bytes = 1 << 20;
  options.shard = shard;
  const auto rows = std::make_shared<RowSource>(32);
  std::unique_ptr<Trainer> trainer(
      new Trainer(make_trainer(model_factory<LargeLayersImpl>(), options, rows)));
  trainer->step(kBatches.front());
  return trainer;
}

struct Held {
  int64_t between = 0;  // bytes of tensors between two steps
  int64_t most = 0;     // in a step
};

// The figures of a large_trainer(), per replica.
Held held_bytes(int world, Shard shard) {
  const CountingAllocator allocator;
  const auto before = allocator.live();
  const auto trainer = large_trainer(world, shard);
  CountingAllocator::forget_most();
  trainer->step(kBatches.front());
  return {(allocator.live() - before) / world, (allocator.most() - before) / world};
}

}  // namespace

TEST_CASE("each replica keeps its part of the state: 1/N of it and at most a bucket") {
  const int64_t weights = kLargeWeights, small = 1 << 20;  // rows, sums, graphs, gaps
  for (const int world : {1, 2, 4, 8}) {
    INFO(world << " replicas");
    CHECK(held_bytes(world, Shard::kNone).between >= 4 * weights);
    const auto optimizer = held_bytes(world, Shard::kOptimizer);
    CHECK(optimizer.between <= 2 * weights + 2 * weights / world + small);
    const auto gradients = held_bytes(world, Shard::kGradients);
    if (world == 1) continue;
    CHECK(gradients.between <= weights + 3 * weights / world + small);
    // The largest gradient, the room that it goes to, and the one that is summed.
    CHECK(gradients.most <= weights + 3 * weights / world + 3 * kLargeBucket + 4 * small);
  }
}

TEST_CASE("replicas that freeze a parameter have a bucket of each other's state at a time") {
  for (const auto shard : {Shard::kOptimizer, Shard::kGradients}) {
    INFO("shard " << name_of(kShardNames, shard));
    const int world = 4;
    const CountingAllocator allocator;
    const auto trainer = large_trainer(world, shard);
    for (int local = 0; local < world; ++local) {
      trainer->model(local).module->named_parameters()["last.bias"].requires_grad_(false);
    }
    CountingAllocator::forget_most();
    const auto before = allocator.live();
    trainer->step(kBatches.front());
    // Weights and gradients move to other memory first. Both moments are 2 kLargeWeights.
    CHECK((allocator.most() - before) / world <= 2 * kLargeWeights + 3 * kLargeBucket + (4 << 20));
  }
}
