// TrainerOptions::replica.sync: parameters that a step does not reach, and hooks.
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include <lockstep/parallel/trainer.h>
#include <lockstep/support/error.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Rows whose first number is above .5 pass a gate. Without such rows the gate is not reached.
class GatedImpl : public torch::nn::Module {
 public:
  GatedImpl()
      : weight_(register_parameter("weight", torch::arange(7840).mul(.7).sin().mul(.1).view({784, 10}))),
        gate_(register_parameter("gate", torch::linspace(-1, 1, 10))) {}

  torch::Tensor forward(const torch::Tensor& X) {
    const auto rows = X.flatten(1);
    const auto opens = rows.select(1, 0) > .5;
    const auto logits = rows.matmul(weight_);
    if (!opens.any().item<bool>()) return logits;
    return logits + opens.unsqueeze(1).to(logits.scalar_type()) * gate_;
  }

 private:
  torch::Tensor weight_, gate_;
};

// Rows 1, 3, 5, 7 and 8 of a RowSource pass the gate; 0, 2, 4, 6 and 9 do not.
const std::vector<Rows> kGatedBatches = {{0, 1, 2, 3, 4, 5, 6, 7},  // first reached
                                         {0, 2, 4, 6, 1, 3, 5, 7},  // not by the first half
                                         {0, 2, 4, 6, 9},           // by none
                                         {8, 0, 2, 4, 6, 9},        // by the first row alone
                                         {9, 2}};

TrainerOptions gated_options(SyncMode mode) {
  TrainerOptions options;
  options.lr = {.lr = .2};
  options.replica.optimizer = {.momentum = .9, .weight_decay = .01};
  options.replica.precision = Precision::kFp64;
  options.replica.sync = {.mode = mode, .bucket_bytes = 1, .unused = UnusedParameters::kZero};
  options.check_sync = 1;
  return options;
}

// The weights after training on whole batches with torch's SGD. to_none: as Python's DistributedDataParallel
// with find_unused_parameters, where a parameter that no replica reaches has no gradient.
Params whole_batch_weights(bool to_none) {
  const auto model = model_factory<GatedImpl>()();
  model.module->to(torch::kFloat64);
  const RowSource rows(32);
  torch::optim::SGD sgd(model.module->parameters(),
                        torch::optim::SGDOptions(.2).momentum(.9).weight_decay(.01));
  for (const auto& batch : kGatedBatches) {
    const auto inputs = rows.batch(batch);
    sgd.zero_grad(to_none);
    (model.loss_sum(in_precision(inputs, Precision::kFp64)).loss / inputs.rows()).backward();
    sgd.step();
  }
  return model.module->parameters();
}

// The weights by parameter, of each replica of the world's first process.
std::vector<Params> gated_weights(const Layout& layout, const TrainerOptions& options) {
  return in_processes(layout, options, [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(32));
    Trainer trainer(model_factory<GatedImpl>(), rows, rows, own);
    for (const auto& batch : kGatedBatches) trainer.step(batch);
    std::vector<Params> weights;
    for (int local = 0; local < trainer.local_size(); ++local) {
      auto& replica = weights.emplace_back();
      for (const auto& named : trainer.weights(local)) replica.push_back(named.tensor);
    }
    return weights;
  })[0];
}

// Eight steps of two layers in float. check_sync compares the replicas after each.
struct HookedRun {
  std::vector<double> losses;
  std::vector<NamedTensor> weights;
};

HookedRun train_hooked(const Layout& layout, const BucketHook& hook, SyncMode mode = SyncMode::kOverlapped) {
  TrainerOptions options;
  options.lr = {.lr = .2};
  options.replica.optimizer.momentum = .9;
  options.replica.sync = {.mode = mode, .bucket_bytes = 1000, .hook = hook};
  options.check_sync = 1;
  return in_processes(layout, options, [](int, const TrainerOptions& own) {
    const auto rows = source(std::make_shared<RowSource>(64));
    Trainer trainer(two_layers(), rows, rows, own);
    HookedRun run;
    run.losses = mean_losses(trainer, 8, first_rows(24));
    run.weights = trainer.weights();
    return run;
  })[0];
}

const std::vector<Layout> kHookLayouts = {{1}, {3}, {1, 1}, {2, 1}};

}  // namespace

TEST_CASE("parameters that some shards, or all, do not reach train as on the whole batch, with zeros") {
  const auto mode = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  const int accumulate = GENERATE(1, 2);
  const auto expected = whole_batch_weights(false);
  const auto as_python = whole_batch_weights(true);
  for (const Layout& layout : std::vector<Layout>{{1}, {2}, {3}, {4}, {2, 1}}) {
    INFO(text_of(layout) << ", " << name_of(kSyncModeNames, mode) << ", " << accumulate << " micro-batches");
    auto options = gated_options(mode);
    options.accumulate = accumulate;
    for (const auto& weights : gated_weights(layout, options)) {
      REQUIRE(weights.size() == 2);
      for (size_t i = 0; i < 2; ++i) CHECK(max_difference(weights[i], expected[i]) <= 1e-13);
      // Decay and momentum move the gate in the steps that do not reach it.
      CHECK(max_difference(weights[1], as_python[1]) > 1e-3);
    }
  }
}

TEST_CASE("by default a parameter that a shard does not reach is an error that names it") {
  auto options = gated_options(SyncMode::kOverlapped);
  options.replica.sync.unused = UnusedParameters::kError;
  CHECK_THROWS_WITH(gated_weights({2}, options), ContainsSubstring("no gradient for gate"));
}

TEST_CASE("invariant takes the gradients of unreached parameters as zeros") {
  auto options = gated_options(SyncMode::kOverlapped);
  options.replica.sync = {};
  options.replica.invariant = true;
  const auto expected = whole_batch_weights(false);
  const auto alone = gated_weights({1}, options)[0];
  for (size_t i = 0; i < 2; ++i) CHECK(max_difference(alone[i], expected[i]) <= 1e-13);
  for (const auto& weights : gated_weights({2}, options)) {
    for (size_t i = 0; i < 2; ++i) CHECK(weights[i].equal(alone[i]));
  }
}

TEST_CASE("a hook that sums as usual sees every bucket of every replica, and changes no bit") {
  for (const auto& layout : kHookLayouts) {
    INFO(text_of(layout));
    std::atomic<int> calls = 0, last_ones = 0;
    const auto found = train_hooked(layout, [&](Endpoint& endpoint, const GradientBucket& bucket) {
      ++calls;
      last_ones += bucket.index + 1 == bucket.count;
      return endpoint.allreduce_gradients(bucket.gradients);
    });
    const auto expected = train_hooked(layout, nullptr);
    CHECK(found.losses == expected.losses);
    for (size_t i = 0; i < expected.weights.size(); ++i) {
      CHECK(found.weights[i].tensor.equal(expected.weights[i].tensor));
    }
    const int replicas = std::accumulate(layout.begin(), layout.end(), 0);
    CHECK(last_ones == 8 * replicas);
    CHECK(calls > last_ones);  // several buckets
  }
}

TEST_CASE("bf16_hook trains all replicas alike, and nearly as exact sums do") {
  const auto mode = GENERATE(SyncMode::kParameterwise, SyncMode::kBucketed, SyncMode::kOverlapped);
  for (const auto& layout : kHookLayouts) {
    INFO(text_of(layout) << ", " << name_of(kSyncModeNames, mode));
    const auto exact = train_hooked(layout, nullptr, mode);
    const auto found = train_hooked(layout, bf16_hook(), mode);
    CHECK(exact.losses.back() < .9 * exact.losses.front());  // it learns something
    CHECK((found.losses == exact.losses) == (layout == Layout{1}));
    for (size_t step = 0; step < found.losses.size(); ++step) {
      CHECK(found.losses[step] == Approx(exact.losses[step]).epsilon(1e-3));
    }
  }
}

// All gradients are one, so that all weights move by lr x clip_norm / sqrt(their number). There are gaps of
// 24 numbers between the 4,780 gradients, which the norm must not count.
TEST_CASE("what a hook leaves is what is clipped, without the gaps between the gradients") {
  const int world = GENERATE(1, 2);
  TrainerOptions options;
  options.devices.assign(static_cast<size_t>(world), torch::kCPU);
  options.lr = {.lr = .5};
  options.replica.clip_norm = 3;
  options.replica.sync.hook = [](Endpoint& endpoint, const GradientBucket& bucket) {
    return endpoint.allreduce_gradients(bucket.gradients).then([bucket] { bucket.gradients.fill_(1); });
  };
  const auto rows = source(std::make_shared<RowSource>(16));
  Trainer trainer(two_layers(), rows, rows, options);
  const auto before = trainer.weights();
  trainer.step(first_rows(16));
  const auto after = trainer.weights();
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].name == "mean") continue;
    INFO(before[i].name);
    const auto moved = (before[i].tensor - after[i].tensor).to(torch::kFloat64);
    CHECK(max_difference(moved, torch::full_like(moved, .5 * 3 / std::sqrt(4780))) <= 1e-7);
  }
}

TEST_CASE("an error of a hook ends the step on all replicas, and is thrown once") {
  TrainerOptions options;
  options.devices.assign(3, torch::kCPU);
  options.replica.sync.hook = [](Endpoint& endpoint, const GradientBucket& bucket) -> Work {
    if (endpoint.rank() == 2) throw std::domain_error("the hook of rank 2");
    return endpoint.allreduce_gradients(bucket.gradients);
  };
  const auto rows = source(std::make_shared<RowSource>(16));
  Trainer trainer(two_layers(), rows, rows, options);
  CHECK_THROWS_AS(trainer.step(first_rows(16)), std::domain_error);
}
