// TrainerOptions::shard: the weights have the same bits as without it.
#include <lockstep/tests/catch.h>

#include <functional>
#include <vector>

#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/parallel/sharded_runs.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

constexpr int kSteps = 50;

struct Case {
  const char* name;
  std::function<void(TrainerOptions&)> change;
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

void check_same_weights(const Case& row, int world) {
  INFO(row.name << ", " << world << " replicas");
  auto options = sharded_options(world);
  row.change(options);
  const auto expected = weights_after(kSteps, wide_layers(), options);
  options.shard = Shard::kOptimizer;
  const auto found = weights_after(kSteps, wide_layers(), options);
  REQUIRE(found.size() == expected.size());
  for (const auto& replica : found) check_same_tensors(replica, expected.front());
}

}  // namespace

TEST_CASE("sharded weights have the bits of unsharded ones: optimizers, 1 to 8 replicas") {
  for (const int world : {1, 2, 3, 4, 5, 8}) {
    for (const auto& row : kOptimizers) check_same_weights(row, world);
  }
}
