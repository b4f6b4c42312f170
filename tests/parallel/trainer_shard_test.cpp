// TrainerOptions::shard: the weights have the same bits as without it.
#include <lockstep/tests/catch.h>

#include <functional>
#include <string>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/sharded_runs.h>
#include <lockstep/tests/parallel/training/layouts.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int kSteps = 50;
constexpr int kFewSteps = 12;  // each batch twice and more

struct Case {
  const char* name;
  std::function<void(TrainerOptions&)> change;
  bool whole_gradients = false;  // refused with Shard::kGradients
};

void use_adam(TrainerOptions& options, OptimizerKind kind) {
  options.lr.lr = .003;
  options.replica.optimizer.kind = kind;
  options.replica.optimizer.weight_decay = .01;
}

const std::vector<Case> kOptimizers = {
    {"sgd", [](TrainerOptions&) {}},
    {"sgd with momentum",
     [](TrainerOptions& options) {
       options.replica.optimizer.momentum = .9;
       options.replica.optimizer.nesterov = true;
       options.replica.optimizer.weight_decay = .01;
     }},
    {"adam", [](TrainerOptions& options) { use_adam(options, OptimizerKind::kAdam); }},
    {"adamw", [](TrainerOptions& options) { use_adam(options, OptimizerKind::kAdamW); }},
};

const std::vector<Case> kSettings = {
    {"clipping",
     [](TrainerOptions& options) {
       options.replica.optimizer.momentum = .9;
       options.replica.clip_norm = .3;
     }},
    {"clipping, adamw, one bucket per parameter",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdamW);
       options.replica.clip_norm = .01;
       options.replica.sync.mode = SyncMode::kParameterwise;
     },
     true},
    {"clipping, adamw, one bucket per parameter, during backward",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdamW);
       options.replica.clip_norm = .01;
       options.replica.sync.bucket_bytes = 1;
     }},
    {"accumulation",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdam);
       options.accumulate = 3;
       options.replica.sync.mode = SyncMode::kBucketed;
     },
     true},
    {"groups",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdamW);
       options.replica.optimizer.group = [](const std::string& name,
                                            const at::Tensor& param) -> GroupOptions {
         if (param.dim() < 2) return {.weight_decay = 0};
         return {.lr_factor = name == "middle" ? 2. : 1.};
       };
     }},
    {"bf16",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdamW);
       options.replica.precision = Precision::kBf16;
     }},
    {"fp16, some steps skipped",
     [](TrainerOptions& options) {
       options.replica.optimizer.momentum = .9;
       options.replica.precision = Precision::kFp16;
       options.replica.loss_scale = {.initial = 0x1p40, .growth_interval = 5};
       options.replica.clip_norm = 1;
     }},
    {"fp64",
     [](TrainerOptions& options) {
       use_adam(options, OptimizerKind::kAdamW);
       options.replica.precision = Precision::kFp64;
       options.replica.clip_norm = .1;
     }},
    {"an average",
     [](TrainerOptions& options) {
       options.replica.optimizer.momentum = .9;
       options.ema = .9;
     }},
    {"two steps in flight", [](TrainerOptions& options) { options.in_flight = 2; }},
    {"one bucket", [](TrainerOptions& options) { options.replica.sync.bucket_bytes = 25 << 20; }},
};

// The end of a process's run: the weights of its replicas, and what they evaluate with.
struct Trained {
  std::vector<std::vector<NamedTensor>> weights;
  std::vector<NamedTensor> averages;
  double loss = 0;
};

Trained trained(Trainer& trainer, int steps) {
  for (int step = 0; step < steps; ++step) {
    trainer.step(kBatches[static_cast<size_t>(step) % kBatches.size()]);
  }
  Trained result{.weights = {}, .averages = trainer.averaged_weights(), .loss = trainer.evaluate().loss};
  const torch::NoGradGuard no_grad;
  for (int local = 0; local < trainer.local_size(); ++local) {
    auto& weights = result.weights.emplace_back();
    for (const auto& item : trainer.model(local).module->named_parameters()) {
      weights.push_back({item.key(), item.value().clone()});
    }
  }
  return result;
}

void check_same(const Trained& found, const Trained& expected) {
  for (const auto& replica : found.weights) check_same_tensors(replica, expected.weights.front());
  check_same_tensors(found.averages, expected.averages);
  CHECK(found.loss == expected.loss);
}

TrainerOptions options_of(const Case& row, int world, Shard shard) {
  auto options = sharded_options(world);
  row.change(options);
  options.shard = shard;
  return options;
}

void check_same_weights(const Case& row, int world, int steps) {
  INFO(row.name << ", " << world << " replicas");
  const auto run = [&](Shard shard) {
    auto trainer = make_trainer(wide_layers(), options_of(row, world, shard));
    return trained(trainer, steps);
  };
  const auto expected = run(Shard::kNone);
  check_same(run(Shard::kOptimizer), expected);
  if (!row.whole_gradients) check_same(run(Shard::kGradients), expected);
}

void check_same_in_processes(const Case& row, const Layout& layout, int steps) {
  INFO(row.name << ", " << text_of(layout) << " replicas");
  const auto run = [&](Shard shard) {
    return in_processes(layout, options_of(row, 1, shard), [&](int, const TrainerOptions& options) {
      auto trainer = make_trainer(wide_layers(), options);
      return trained(trainer, steps);
    });
  };
  const auto expected = run(Shard::kNone).front();
  for (const auto& process : run(Shard::kOptimizer)) check_same(process, expected);
  if (row.whole_gradients) return;
  for (const auto& process : run(Shard::kGradients)) check_same(process, expected);
}

}  // namespace

TEST_CASE("sharded weights have the bits of unsharded ones: optimizers, 1 to 8 replicas") {
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    for (const auto& row : kOptimizers) check_same_weights(row, world, world == 3 ? kSteps : kFewSteps);
  }
}

TEST_CASE("sharded weights have the bits of unsharded ones: settings") {
  for (const int world : {1, 3, 8}) {
    for (const auto& row : kSettings) check_same_weights(row, world, kFewSteps);
  }
}

TEST_CASE("sharded weights have the bits of unsharded ones: the same for every number of replicas") {
  const Case invariant{"invariant",
                       [](TrainerOptions& options) {
                         options.replica.sync = {};
                         options.replica.invariant = true;
                         options.replica.clip_norm = .3;
                       },
                       true};
  for (const int world : {1, 2, 8}) check_same_weights(invariant, world, kFewSteps);
}

TEST_CASE("sharded weights have the bits of unsharded ones: processes", "[cpu][slow]") {
  for (const auto& row : kOptimizers) check_same_in_processes(row, {1, 1}, kSteps);
  for (const auto& row : kOptimizers) check_same_in_processes(row, {1, 1, 1}, kFewSteps);
  for (const Layout& layout : {Layout{1, 1, 1}, Layout{1, 3, 2}}) {
    for (const auto& row : kSettings) check_same_in_processes(row, layout, kFewSteps);
  }
}
