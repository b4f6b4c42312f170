// Compares captured and replayed steps with eager steps. No GPU is used: a fake CUDA graph
// (fake_step_graph.h) keeps its work and runs it at each replay. The tests show that all that differs between
// steps is in tensors, that each shape has its own graph, and what happens after a failure. Whether CUDA can
// capture the kernels only a GPU can show.
#include <torch/nn/module.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>

#include <lockstep/models/lenet.h>
#include <lockstep/models/resnet18.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/parallel/training/graphs/fake_step_graph.h>
#include <lockstep/tests/parallel/training/two_layers.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/whole_batch.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using Rows = std::vector<int64_t>;

// Twelve steps of four epochs whose last batch is smaller. Each step has other rows.
std::vector<Rows> batches() {
  std::vector<Rows> all;
  for (int64_t step = 0; step < 12; ++step) {
    Rows rows;
    for (int64_t i = 0; i < (step % 3 == 2 ? 5 : 9); ++i) rows.push_back((step * 7 + i * 3) % 32);
    all.push_back(rows);
  }
  return all;
}

TrainerOptions options_for(int world, CudaGraph graph) {
  TrainerOptions options;
  options.devices = std::vector<torch::Device>(static_cast<size_t>(world), torch::kCPU);
  // Another rate in every step: a rate kept in the graph would show.
  options.lr = {.schedule = Schedule::kCosine, .lr = .2, .total_steps = 12, .warmup_steps = 2};
  options.replica.optimizer = {.momentum = .9, .weight_decay = 1e-3};
  options.replica.cuda_graph = graph;
  return options;
}

ModelFactory lenet_factory() { return model_factory<LeNetImpl>(uint64_t{0}, torch::kFloat32); }

ModelFactory residual_factory() {
  ResNet18Options options;
  // With fewer channels the AVX2 kernel of oneDNN 3.13 for weight gradients of 1 x 1 convolutions writes past
  // its buffer.
  options.width = 8;
  options.initialization = Initialization::kTorch;
  return model_factory<ResNet18Impl>(options);
}

struct Result {
  std::vector<std::vector<NamedTensor>> weights;  // [rank]
  std::vector<TrainSums> sums;                    // every three steps
};

Result train(
    const ModelFactory& factory, const TrainerOptions& options,
    const std::function<void(Trainer&)>& before_step = [](auto&) {}) {
  const auto rows = std::make_shared<RowSource>(32);
  Trainer trainer(factory, source(rows), source(rows), options);
  Result result;
  for (const auto& batch : batches()) {
    before_step(trainer);
    trainer.step(batch);
    if (trainer.steps_taken() % 3 == 0) result.sums.push_back(trainer.take_sums());
  }
  for (int rank = 0; rank < trainer.world_size(); ++rank) result.weights.push_back(trainer.weights(rank));
  return result;
}

void check_same(const Result& found, const Result& expected) {
  REQUIRE(found.weights.size() == expected.weights.size());
  for (size_t rank = 0; rank < expected.weights.size(); ++rank) {
    for (size_t i = 0; i < expected.weights[rank].size(); ++i) {
      INFO("rank " << rank << ", " << expected.weights[rank][i].name);
      CHECK(found.weights[rank][i].tensor.equal(expected.weights[rank][i].tensor));
    }
  }
  for (size_t i = 0; i < expected.sums.size(); ++i) {
    CHECK(found.sums[i].loss == expected.sums[i].loss);
    CHECK(found.sums[i].top1 == expected.sums[i].top1);
    CHECK(found.sums[i].top5 == expected.sums[i].top5);
    CHECK(found.sums[i].rows == expected.sums[i].rows);
  }
}

}  // namespace

TEST_CASE("captured steps give the same weights and sums as eager steps") {
  const int world = GENERATE(1, 2, 3);
  const bool residual = GENERATE(false, true);
  const auto factory = residual ? residual_factory() : lenet_factory();
  INFO("world " << world << (residual ? ", residual network" : ", LeNet"));
  fake_step_graphs() = {.available = true};
  const auto expected = train(factory, options_for(world, CudaGraph::kOff));
  CHECK(fake_step_graphs().captured == 0);
  const auto found = train(factory, options_for(world, CudaGraph::kOn));
  check_same(found, expected);
  // Per replica: one graph per shape, and one for the update where gradients are summed in between.
  CHECK(fake_step_graphs().captured == (world == 1 ? 2 : 3 * world));
  // Steps 0-2 run eagerly. From step 3 on all are replayed, since both shapes have run before.
  CHECK(fake_step_graphs().replayed == 9 * (world == 1 ? 1 : 2 * world));
}

TEST_CASE("captured steps with micro-batches, clipping, and replicas without rows") {
  fake_step_graphs() = {.available = true};
  auto off = options_for(6, CudaGraph::kOff);  // of five rows one replica gets none
  off.accumulate = 2;
  off.replica.clip_norm = .5;
  auto on = off;
  on.replica.cuda_graph = CudaGraph::kOn;
  const auto expected = train(lenet_factory(), off);
  check_same(train(lenet_factory(), on), expected);
  CHECK(fake_step_graphs().replayed > 0);
}

// A hook is not captured: it is called after each replayed backward pass, by a lone replica too, and what it
// leaves is what the captured update uses.
TEST_CASE("captured steps call the hook in every step, and give the results of eager steps") {
  const int world = GENERATE(1, 2);
  fake_step_graphs() = {.available = true};
  std::atomic<int> calls = 0;
  auto off = options_for(world, CudaGraph::kOff);
  off.replica.sync.bucket_bytes = 1 << 10;
  off.replica.sync.hook = [&](Endpoint& endpoint, const GradientBucket& bucket) {
    ++calls;
    return endpoint.allreduce_gradients(bucket.gradients.mul_(-.5));
  };
  auto on = off;
  on.replica.cuda_graph = CudaGraph::kOn;
  const auto expected = train(lenet_factory(), off);
  const int eager_calls = calls.exchange(0);
  check_same(train(lenet_factory(), on), expected);
  CHECK(calls == eager_calls);
  CHECK(eager_calls > 12 * world);  // several buckets in each of twelve steps
  CHECK(fake_step_graphs().replayed == 9 * 2 * world);
}

TEST_CASE("captured steps with AdamW") {
  fake_step_graphs() = {.available = true};
  auto off = options_for(2, CudaGraph::kOff);
  off.replica.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  auto on = off;
  on.replica.cuda_graph = CudaGraph::kAuto;
  const auto expected = train(lenet_factory(), off);
  check_same(train(lenet_factory(), on), expected);
  CHECK(fake_step_graphs().replayed > 0);
}

TEST_CASE("captured steps go on from a loaded state: they read and write the same memory") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const bool adamw = GENERATE(false, true);
  auto options = options_for(world, CudaGraph::kOn);
  if (adamw) options.replica.optimizer = {.kind = OptimizerKind::kAdamW};
  const auto rows = std::make_shared<RowSource>(32);
  Trainer trainer(residual_factory(), source(rows), source(rows), options);
  const auto all = batches();
  TrainState state;
  for (size_t step = 0; step < all.size(); ++step) {
    if (step == 6) state = trainer.state();
    trainer.step(all[step]);
  }
  const auto expected = trainer.weights();
  const int replayed = fake_step_graphs().replayed;
  trainer.load(state);
  for (size_t step = 6; step < all.size(); ++step) trainer.step(all[step]);
  const auto found = trainer.weights();
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    CHECK(found[i].tensor.equal(expected[i].tensor));
  }
  CHECK(fake_step_graphs().replayed == replayed + 6 * (world == 1 ? 1 : 2 * world));
}

// A real graph runs no code of the host, which could look: the step ends before.
TEST_CASE("a parameter whose memory is replaced after capture ends the replayed step") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  int built = 0;
  std::atomic<int> computed = 0;  // by the last replica
  const ModelFactory factory = [&] {
    auto model = lenet_factory()();
    model.loss_sum = [&, is_last = ++built == world, loss = model.loss_sum](const Inputs& inputs) {
      if (is_last) ++computed;
      return loss(inputs);
    };
    return model;
  };
  const auto rows = std::make_shared<RowSource>(32);
  Trainer trainer(factory, source(rows), source(rows), options_for(world, CudaGraph::kOn));
  const auto all = batches();
  for (size_t step = 0; step < 6; ++step) trainer.step(all[step]);
  const int replayed = fake_step_graphs().replayed;
  CHECK(replayed > 0);
  auto param = trainer.model(world - 1).module->named_parameters()["b2"];
  param.set_data(param.detach().clone());
  CHECK_THROWS_WITH(trainer.step(all[6]), ContainsSubstring("parameter b2 has other memory"));
  CHECK(computed == 6);
}

TEST_CASE("a buffer whose memory is replaced after capture ends the replayed step; eager steps follow it") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const bool captured = GENERATE(true, false);
  const auto rows = std::make_shared<RowSource>(32);
  Trainer trainer(residual_factory(), source(rows), source(rows),
                  options_for(world, captured ? CudaGraph::kOn : CudaGraph::kOff));
  const auto all = batches();
  for (size_t step = 0; step < 6; ++step) trainer.step(all[step]);
  auto mean = trainer.model(world - 1).module->named_buffers()["1.running_mean"];
  mean.set_data(torch::full_like(mean, 100));
  if (captured) {
    CHECK_THROWS_WITH(trainer.step(all[6]), ContainsSubstring("replica " + std::to_string(world - 1) +
                                                              ": buffer 1.running_mean has other memory"));
  } else {
    trainer.step(all[6]);
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
  const ModelFactory factory = [&] {
    auto model = lenet_factory()();
    model.loss_sum = [&, loss = model.loss_sum](const Inputs& inputs) {
      if (auto* replaced = module.exchange(nullptr)) {
        auto param = replaced->named_parameters()["b2"];
        param.set_data(param.detach().clone());
      }
      return loss(inputs);
    };
    return model;
  };
  const auto rows = std::make_shared<RowSource>(32);
  auto options = options_for(1, mode);
  int notices = 0;
  options.replica.notice = [&](const std::string&) { ++notices; };
  Trainer trainer(factory, source(rows), source(rows), options);
  const auto all = batches();
  for (size_t step = 0; step < 3; ++step) trainer.step(all[step]);
  module = trainer.model(0).module.get();
  CHECK_THROWS_AS(trainer.step(all[3]), UsageError);
  CHECK(fake_step_graphs().captured == 0);
  CHECK(notices == 0);
}

TEST_CASE("captured steps are captured anew when a parameter is frozen or unfrozen") {
  fake_step_graphs() = {.available = true};
  const int world = GENERATE(1, 2);
  const auto train_and_freeze = [&](CudaGraph mode) {
    const auto rows = std::make_shared<RowSource>(32);
    Trainer trainer(lenet_factory(), source(rows), source(rows), options_for(world, mode));
    for (const auto& batch : batches()) {
      if (trainer.steps_taken() == 6) {
        for (int local = 0; local < world; ++local) {
          trainer.model(local).module->named_parameters()["W1"].requires_grad_(false);
        }
      }
      trainer.step(batch);
    }
    return trainer.weights(world - 1);
  };
  const auto expected = train_and_freeze(CudaGraph::kOff);
  const auto found = train_and_freeze(CudaGraph::kOn);
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(expected[i].name);
    CHECK(found[i].tensor.equal(expected[i].tensor));
  }
  // Both halves run three steps eagerly, and replay three.
  CHECK(fake_step_graphs().replayed == 6 * (world == 1 ? 1 : 2 * world));
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
  CHECK(fake_step_graphs().replayed == (frozen ? 6 : 9) * (world == 1 ? 1 : 2 * world));
}

// Their counts lie elsewhere from then on.
TEST_CASE("captured steps are captured anew when a state is loaded that counts steps by parameter") {
  fake_step_graphs() = {.available = true};
  auto options = options_for(1, CudaGraph::kOn);
  options.replica.optimizer = {.kind = OptimizerKind::kAdamW};
  options.lr = {.lr = .01};
  const auto rows = std::make_shared<RowSource>(32);
  const auto all = batches();
  Trainer other(lenet_factory(), source(rows), source(rows), options);
  const auto first = other.model(0).module->named_parameters()["W1"];
  first.requires_grad_(false);
  other.step(all[0]);
  other.synchronize();
  first.requires_grad_(true);
  other.step(all[1]);
  const auto state = other.state();
  CHECK(fake_step_graphs().captured == 0);

  Trainer trainer(lenet_factory(), source(rows), source(rows), options);
  for (size_t step = 0; step < 6; ++step) trainer.step(all[step]);
  CHECK(fake_step_graphs().captured == 2);  // of both shapes
  trainer.load(state);
  for (size_t step = 6; step < 12; ++step) trainer.step(all[step]);
  CHECK(fake_step_graphs().captured == 4);
}

TEST_CASE("a loss that is not finite is reported with its step, captured or not") {
  fake_step_graphs() = {.available = true};
  const int64_t wrong = GENERATE(1, 5, 11);
  auto options = options_for(1, CudaGraph::kOn);
  options.lr = {.lr = .1};
  const auto rows = std::make_shared<RowSource>(32);
  Trainer trainer(lenet_factory(), source(rows), source(rows), options);
  const auto all = batches();
  for (int64_t step = 0; step < 12; ++step) {
    if (step == wrong) {
      const torch::NoGradGuard no_grad;
      trainer.model(0).module->parameters()[0].fill_(std::numeric_limits<float>::quiet_NaN());
    }
    trainer.step(all[static_cast<size_t>(step)]);
  }
  const auto sums = trainer.take_sums();
  REQUIRE(sums.bad);
  CHECK(sums.bad->step == wrong);
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

TEST_CASE("with a trace, invariant, auto_split, BnPolicy::kSync or no GPU nothing is captured") {
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
  for (const auto& options : {traced, invariant, tuned}) train(lenet_factory(), options);
  fake_step_graphs().available = false;  // no CUDA in this build, or a CPU
  train(lenet_factory(), options_for(1, CudaGraph::kAuto));
  CHECK(fake_step_graphs().captured == 0);
}
