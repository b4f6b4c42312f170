// Compares captured and replayed steps with eager steps. No GPU is used: a fake CUDA graph
// (fake_step_graph.h) keeps its work and runs it at each replay. The tests show that all that differs between
// steps is in tensors, that each shape has its own graph, and what happens after a failure. Whether CUDA can
// capture the kernels only a GPU can show.
#include <torch/nn/module.h>
#include <torch/optim/adamw.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/recompute.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/sharded_runs.h>
#include <lockstep/tests/parallel/trainer_cases.h>
#include <lockstep/tests/parallel/training/graphs/fake_step_graph.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/parallel/training/two_layers.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Twelve steps of four epochs whose last batch is smaller. Each step has other rows.
const std::vector<Rows> kSteps = [] {
  std::vector<Rows> all(12);
  for (int64_t step = 0; step < 12; ++step) {
    for (int64_t i = 0; i < (step % 3 == 2 ? 5 : 9); ++i) {
      all[static_cast<size_t>(step)].push_back((step * 7 + i * 3) % 32);
    }
  }
  return all;
}();

void take_steps(Trainer& trainer, size_t first, size_t last) {
  for (size_t step = first; step < last; ++step) trainer.step(kSteps[step]);
}

TrainerOptions options_for(int world, CudaGraph graph) {
  auto options = lockstep::testing::options_for(world);
  // Another rate in every step: a rate kept in the graph would show.
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 12, .warmup_steps = 2};
  options.replica.optimizer = {.momentum = .9, .weight_decay = 1e-3};
  options.replica.cuda_graph = graph;
  return options;
}

ModelFactory residual_factory() { return small_residual_factory(/*batch_norm=*/true); }

// How many graphs the replicas replay in a step: one each, and one for the update where gradients are summed
// in between.
int graphs_per_step(int world) { return world == 1 ? 1 : 2 * world; }

struct Result {
  std::vector<std::vector<NamedTensor>> weights;  // of each rank, and their average
  std::vector<TrainSums> sums;                    // every three steps
};

Result train(
    const ModelFactory& factory, const TrainerOptions& options,
    const std::function<void(Trainer&)>& before_step = [](auto&) {}) {
  auto trainer = make_trainer(factory, options);
  Result result;
  for (const auto& batch : kSteps) {
    before_step(trainer);
    trainer.step(batch);
    if (trainer.steps_taken() % 3 == 0) result.sums.push_back(trainer.take_sums());
  }
  for (int rank = 0; rank < trainer.world_size(); ++rank) {
    result.weights.push_back(trainer.weights(rank));
    result.weights.push_back(trainer.averaged_weights(rank));
  }
  return result;
}

void check_same(const Result& found, const Result& expected) {
  REQUIRE(found.weights.size() == expected.weights.size());
  for (size_t rank = 0; rank < expected.weights.size(); ++rank) {
    INFO("rank " << rank / 2);
    check_same_tensors(found.weights[rank], expected.weights[rank]);
  }
  for (size_t i = 0; i < expected.sums.size(); ++i) check_same_sums(found.sums[i], expected.sums[i]);
}

// Training with captured steps gives the results of eager ones.
void check_captured(const ModelFactory& factory, TrainerOptions options, CudaGraph graph = CudaGraph::kOn) {
  fake_step_graphs() = {.available = true};
  options.replica.cuda_graph = CudaGraph::kOff;
  const auto expected = train(factory, options);
  CHECK(fake_step_graphs().captured == 0);
  options.replica.cuda_graph = graph;
  check_same(train(factory, options), expected);
  CHECK(fake_step_graphs().replayed > 0);
}

}  // namespace

TEST_CASE("captured steps give the same weights and sums as eager steps") {
  const int world = GENERATE(1, 2, 3);
  const bool residual = GENERATE(false, true);
  INFO("world " << world << (residual ? ", residual network" : ", LeNet"));
  check_captured(residual ? residual_factory() : lenet_factory(), options_for(world, CudaGraph::kOn));
  // Per replica: one graph per shape, and one for the update where gradients are summed in between.
  CHECK(fake_step_graphs().captured == (world == 1 ? 2 : 3 * world));
  // Steps 0-2 run eagerly. From step 3 on all are replayed, since both shapes have run before.
  CHECK(fake_step_graphs().replayed == 9 * graphs_per_step(world));
}

TEST_CASE("captured steps with micro-batches, clipping, replicas without rows, AdamW, and an average") {
  auto six = options_for(6, CudaGraph::kOn);  // of five rows one replica gets none
  six.accumulate = 2;
  six.replica.clip_norm = .5;
  check_captured(lenet_factory(), six);
  auto adamw = options_for(2, CudaGraph::kOn);
  adamw.replica.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  check_captured(lenet_factory(), adamw, CudaGraph::kAuto);
  for (const int world : {1, 2}) {
    auto average = options_for(world, CudaGraph::kOn);
    average.ema = .9;
    check_captured(lenet_factory(), average);
  }
}

TEST_CASE("captured steps of each optimizer, with parameter groups and clipping, alone and together") {
  const GroupOf groups = [](const std::string& name, const torch::Tensor& param) -> GroupOptions {
    if (param.dim() < 2) return {.lr_factor = .5, .weight_decay = 0};
    if (name == "inner") return {.lr_factor = 2};
    return {};
  };
  const std::vector<std::pair<std::string, OptimizerOptions>> optimizers = {
      {"sgd", {.momentum = .9, .nesterov = true, .weight_decay = .01}},
      {"adam", {.kind = OptimizerKind::kAdam, .weight_decay = .01}},
      {"adamw", {.kind = OptimizerKind::kAdamW, .weight_decay = .01}}};
  struct Way {
    bool grouped;
    double clip_norm;
    int world;
  };
  for (const auto& [name, optimizer] : optimizers) {
    for (const auto& [grouped, clip_norm, world] :
         {Way{false, 0, 1}, {true, 0, 2}, {false, .1, 2}, {true, .1, 1}, {true, .1, 2}}) {
      INFO(name << (grouped ? ", groups" : "") << ", clip_norm " << clip_norm << ", world " << world);
      auto options = options_for(world, CudaGraph::kOn);
      options.lr.lr = name == "sgd" ? .1 : .01;
      options.replica.optimizer = optimizer;
      if (grouped) options.replica.optimizer.group = groups;
      options.replica.clip_norm = clip_norm;
      check_captured(two_layers(), options);
    }
  }
}

TEST_CASE(
    "captured steps with shards of the optimizer fetch after each replayed update, with the same bits") {
  const std::pair<std::string, OptimizerOptions> optimizers[] = {
      {"sgd", {.momentum = .9, .weight_decay = .01}}, {"adamw", {.kind = OptimizerKind::kAdamW}}};
  for (const auto& [name, optimizer] : optimizers) {
    for (const int world : {1, 2, 3}) {
      INFO(name << ", world " << world);
      auto options = options_for(world, CudaGraph::kOn);
      options.shard = Shard::kOptimizer;
      options.replica.sync.bucket_bytes = 30'000;  // several, most of which have several owners
      options.replica.optimizer = optimizer;
      options.lr.lr = .02;
      options.ema = world == 3 ? .9 : 0;
      options.accumulate = world == 2 ? 2 : 1;
      check_captured(wide_layers(), options);
      CHECK(fake_step_graphs().replayed == 9 * graphs_per_step(world));
      auto whole = options;
      whole.shard = Shard::kNone;
      whole.replica.cuda_graph = CudaGraph::kOff;
      check_same(train(wide_layers(), options), train(wide_layers(), whole));
    }
  }
}

// A hook is not captured: it is called after each replayed backward pass, by a lone replica too, and what it
// leaves is what the captured update uses.
TEST_CASE("captured steps call the hook in every step, and give the results of eager steps") {
  const int world = GENERATE(1, 2);
  fake_step_graphs() = {.available = true};
  std::atomic<int> calls = 0;
  auto options = options_for(world, CudaGraph::kOff);
  options.replica.sync.bucket_bytes = 1 << 10;
  options.replica.sync.hook = [&](Endpoint& endpoint, const GradientBucket& bucket) {
    ++calls;
    return endpoint.allreduce_gradients(bucket.gradients.mul_(-.5));
  };
  const auto expected = train(lenet_factory(), options);
  const int eager_calls = calls.exchange(0);
  options.replica.cuda_graph = CudaGraph::kOn;
  check_same(train(lenet_factory(), options), expected);
  CHECK(calls == eager_calls);
  CHECK(eager_calls > 12 * world);  // several buckets in each of twelve steps
  CHECK(fake_step_graphs().replayed == 9 * 2 * world);
}

TEST_CASE("captured steps go on from a loaded state: they read and write the same memory") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const bool adamw = GENERATE(false, true);
  auto options = options_for(world, CudaGraph::kOn);
  if (adamw) options.replica.optimizer = {.kind = OptimizerKind::kAdamW};
  auto trainer = make_trainer(residual_factory(), options);
  take_steps(trainer, 0, 6);
  const auto state = trainer.state();
  take_steps(trainer, 6, 12);
  const auto expected = trainer.weights();
  const int replayed = fake_step_graphs().replayed;
  trainer.load(state);
  take_steps(trainer, 6, 12);
  check_same_tensors(trainer.weights(), expected);
  CHECK(fake_step_graphs().replayed == replayed + 6 * graphs_per_step(world));
}

// A real graph runs no code of the host, which could look: the step ends before.
TEST_CASE("a parameter whose memory is replaced after capture ends the replayed step") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  std::atomic<int> computed = 0;  // by the last replica
  auto trainer = make_trainer(lenet_with([&](const Batch& inputs, const Loss& loss, int replica) {
                                computed += replica + 1 == world;
                                return loss(inputs);
                              }),
                              options_for(world, CudaGraph::kOn));
  take_steps(trainer, 0, 6);
  CHECK(fake_step_graphs().replayed > 0);
  auto param = trainer.model(world - 1).module->named_parameters()["b2"];
  param.set_data(param.detach().clone());
  CHECK_THROWS_WITH(trainer.step(kSteps[6]), ContainsSubstring("parameter b2 has other memory"));
  CHECK(computed == 6);
}

TEST_CASE("a buffer whose memory is replaced after capture ends the replayed step; eager steps follow it") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const bool captured = GENERATE(true, false);
  auto trainer =
      make_trainer(residual_factory(), options_for(world, captured ? CudaGraph::kOn : CudaGraph::kOff));
  take_steps(trainer, 0, 6);
  auto mean = trainer.model(world - 1).module->named_buffers()["1.running_mean"];
  mean.set_data(torch::full_like(mean, 100));
  if (captured) {
    CHECK_THROWS_WITH(trainer.step(kSteps[6]), ContainsSubstring("replica " + std::to_string(world - 1) +
                                                                 ": buffer 1.running_mean has other memory"));
  } else {
    trainer.step(kSteps[6]);
    CHECK((mean - 90).abs().max().item<float>() < 1);  // .9 x 100 + .1 x the batch's
  }
}

TEST_CASE("zero_grad() between captured steps, or in each forward pass, changes no step") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const auto options = options_for(world, CudaGraph::kOn);
  const auto expected = train(lenet_factory(), options);
  const int replayed = fake_step_graphs().replayed;
  CHECK(replayed > 0);
  check_same(train(lenet_factory(), options,
                   [&](auto& trainer) {
                     for (int local = 0; local < world; ++local) trainer.model(local).module->zero_grad();
                   }),
             expected);
  check_same(train(zeroing_gradients(lenet_factory()), options), expected);
  CHECK(fake_step_graphs().replayed == 3 * replayed);
}

TEST_CASE("a parameter whose memory is replaced during capture is a wrong use, not a step without a graph") {
  fake_step_graphs() = {.available = true, .runs_at_capture = true};
  const auto mode = GENERATE(CudaGraph::kOn, CudaGraph::kAuto);
  std::atomic<torch::nn::Module*> module = nullptr;
  const auto factory = lenet_with([&](const Batch& inputs, const Loss& loss, int) {
    if (auto* replaced = module.exchange(nullptr)) {
      auto param = replaced->named_parameters()["b2"];
      param.set_data(param.detach().clone());
    }
    return loss(inputs);
  });
  auto options = options_for(1, mode);
  int notices = 0;
  options.replica.notice = [&](const std::string&) { ++notices; };
  auto trainer = make_trainer(factory, options);
  take_steps(trainer, 0, 3);
  module = trainer.model(0).module.get();
  CHECK_THROWS_AS(trainer.step(kSteps[3]), UsageError);
  CHECK(fake_step_graphs().captured == 0);
  CHECK(notices == 0);
}

TEST_CASE("captured steps are captured anew when a parameter is frozen or unfrozen") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const auto train_and_freeze = [&](CudaGraph mode) {
    auto trainer = make_trainer(lenet_factory(), options_for(world, mode));
    take_steps(trainer, 0, 6);
    for (int local = 0; local < world; ++local) {
      trainer.model(local).module->named_parameters()["W1"].requires_grad_(false);
    }
    take_steps(trainer, 6, 12);
    return trainer.weights(world - 1);
  };
  const auto expected = train_and_freeze(CudaGraph::kOff);
  check_same_tensors(train_and_freeze(CudaGraph::kOn), expected);
  // Both halves run three steps eagerly, and replay three.
  CHECK(fake_step_graphs().replayed == 6 * graphs_per_step(world));
}

TEST_CASE("captured steps are captured anew when a part is set to eval(), and not by evaluate()") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const bool frozen = GENERATE(false, true);
  const auto before_step = [&](Trainer& trainer) {
    if (trainer.steps_taken() != 6) return;
    trainer.evaluate();
    for (int local = 0; local < world && frozen; ++local) {
      trainer.model(local).module->named_modules()["1"]->eval();
    }
  };
  const auto expected = train(residual_factory(), options_for(world, CudaGraph::kOff), before_step);
  check_same(train(residual_factory(), options_for(world, CudaGraph::kOn), before_step), expected);
  CHECK(fake_step_graphs().replayed == (frozen ? 6 : 9) * graphs_per_step(world));
}

// Their counts lie elsewhere from then on.
TEST_CASE("captured steps are captured anew when a state is loaded that counts steps by parameter") {
  fake_step_graphs() = {.available = true};
  auto options = options_for(1, CudaGraph::kOn);
  options.replica.optimizer = {.kind = OptimizerKind::kAdamW};
  options.lr = {.lr = .01};
  auto other = make_trainer(lenet_factory(), options);
  const auto first = other.model(0).module->named_parameters()["W1"];
  first.requires_grad_(false);
  other.step(kSteps[0]);
  other.synchronize();
  first.requires_grad_(true);
  other.step(kSteps[1]);
  const auto state = other.state();
  CHECK(fake_step_graphs().captured == 0);

  auto trainer = make_trainer(lenet_factory(), options);
  take_steps(trainer, 0, 6);
  CHECK(fake_step_graphs().captured == 2);  // of both shapes
  trainer.load(state);
  take_steps(trainer, 6, 12);
  CHECK(fake_step_graphs().captured == 4);
}

TEST_CASE("a loss that is not finite is reported with its step, captured or not") {
  fake_step_graphs() = {.available = true};
  const size_t wrong = GENERATE(1U, 5U, 11U);
  auto options = options_for(1, CudaGraph::kOn);
  options.lr = {.lr = .1};
  auto trainer = make_trainer(lenet_factory(), options);
  take_steps(trainer, 0, wrong);
  {
    const torch::NoGradGuard no_grad;
    trainer.model(0).module->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  take_steps(trainer, wrong, 12);
  const auto sums = trainer.take_sums();
  REQUIRE(sums.bad);
  CHECK(sums.bad->step == static_cast<int64_t>(wrong));
}

TEST_CASE("a step that cannot be captured is an error with kOn; with kAuto it is a notice and runs eagerly") {
  fake_step_graphs() = {.available = true, .refuses = "operation not permitted when stream is capturing"};
  CHECK_THROWS_AS(train(lenet_factory(), options_for(1, CudaGraph::kOn)), FailedError);
  CHECK_THROWS_WITH(
      train(lenet_factory(), options_for(2, CudaGraph::kOn)),
      ContainsSubstring("a step on cpu cannot be captured as a CUDA graph: operation not permitted"));
  const int world = GENERATE(1, 2);
  auto options = options_for(world, CudaGraph::kAuto);
  std::mutex mutex;
  std::vector<std::string> notices;
  options.replica.notice = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    notices.push_back(text);
  };
  check_same(train(lenet_factory(), options), train(lenet_factory(), options_for(world, CudaGraph::kOff)));
  CHECK(notices.size() == static_cast<size_t>(world));  // one per replica, not one per step
  CHECK_THAT(notices.front(), ContainsSubstring("; it is queued kernel by kernel"));
}

TEST_CASE("a step with recompute() is not captured: an error with kOn; with kAuto it runs eagerly") {
  fake_step_graphs() = {.available = true, .runs_at_capture = true};
  const auto again = lenet_with([](const Batch& rows, const Loss& loss, int) {
    recompute([](const torch::Tensor& x) { return x.sin(); }, torch::ones({2}));
    return loss(rows);
  });
  CHECK_THROWS_WITH(train(again, options_for(1, CudaGraph::kOn)),
                    ContainsSubstring("cannot be captured as a CUDA graph: ") &&
                        ContainsSubstring("recompute() in a step that is captured"));
  auto options = options_for(1, CudaGraph::kAuto);
  int notices = 0;
  options.replica.notice = [&](const std::string&) { ++notices; };
  train(again, options);
  CHECK(notices == 1);
  CHECK(fake_step_graphs().captured == 0);
}

TEST_CASE(
    "with a trace, invariant, auto_split, BnPolicy::kSync, a factory's optimizer, fp16, shards or no GPU "
    "nothing is captured") {
  fake_step_graphs() = {.available = true};
  Trace trace;
  auto traced = options_for(2, CudaGraph::kAuto);
  traced.replica.trace = &trace;
  auto invariant = options_for(2, CudaGraph::kAuto);
  invariant.replica.invariant = true;
  auto tuned = options_for(2, CudaGraph::kAuto);
  tuned.auto_split = true;
  auto synced = options_for(2, CudaGraph::kAuto);
  synced.bn = BnPolicy::kSync;
  train(residual_factory(), synced);
  auto made = options_for(2, CudaGraph::kAuto);
  made.replica.optimizer = {.factory = [](std::vector<torch::Tensor> params) {
    return std::make_unique<torch::optim::AdamW>(params);
  }};
  auto in_fp16 = options_for(2, CudaGraph::kAuto);
  in_fp16.replica.precision = Precision::kFp16;
  auto shares = options_for(2, CudaGraph::kAuto);
  shares.shard = Shard::kOptimizer;
  for (const auto& options : {traced, invariant, tuned, made, in_fp16, shares})
    train(lenet_factory(), options);
  fake_step_graphs().available = false;  // no CUDA in this build, or a CPU
  train(lenet_factory(), options_for(1, CudaGraph::kAuto));
  CHECK(fake_step_graphs().captured == 0);
}
