// A save of a sharded training that is killed at any of its system calls.
#include <lockstep/tests/catch.h>

#include <filesystem>

#include <lockstep/data/train_checkpoint.h>
#include <lockstep/tests/parallel/sharded_runs.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_memory.h>
#include <lockstep/tests/support/syscall_faults.h>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

namespace {

TrainerOptions sharded_adamw(int world, Shard shard) {
  auto options = sharded_options(world);
  options.replica.optimizer = {.kind = OptimizerKind::kAdamW, .weight_decay = .01};
  options.ema = .9;
  options.shard = shard;
  return options;
}

// The states of a training after one and after two steps.
std::vector<TrainState> saved_states() {
  auto trainer = make_trainer(wide_layers(), sharded_adamw(3, Shard::kGradients));
  std::vector<TrainState> states;
  for (const auto& rows : {kBatches[0], kBatches[1]}) {
    trainer.step(rows);
    states.push_back(trainer.state());
  }
  return states;
}

// Loads what the folder's link leads to. Its state must be all of the one or all of the other.
int64_t load_last(const fs::path& folder, const std::vector<TrainState>& states, Trainer& trainer) {
  trainer.load(read_train_state(read_checkpoint(folder / "last")));
  const auto steps = trainer.steps_taken();
  REQUIRE((steps == 1 || steps == 2));
  const auto& expected = states[static_cast<size_t>(steps) - 1];
  const auto found = trainer.state();
  check_same_tensors(found.model, expected.model);
  check_same_tensors(found.optimizer, expected.optimizer);
  check_same_tensors(found.average, expected.average);
  return steps;
}

}  // namespace

TEST_CASE("a sharded training's save killed at any system call leaves a checkpoint that others load") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  const auto states = saved_states();
  auto other = make_trainer(wide_layers(), sharded_adamw(2, Shard::kOptimizer));
  int calls = 0, of_first = 0;
  for (bool reached = true; reached; ++calls) {
    const TempFolder folder(in_memory());
    const auto save = [&](size_t step) {
      const auto path = folder.path() / ("step-" + std::to_string(step));
      write_checkpoint(path, to_checkpoint(states[step - 1]));
      link_checkpoint(path, "last");
    };
    save(1);
    const auto run = run_with_fault(
        [&] {
          save(2);
          remove_checkpoint(folder.path() / "step-1");
        },
        {.call = calls, .kind = Fault::kKill});
    reached = run.reached;
    INFO("killed at call " << calls);
    CHECK(run.killed == reached);
    const auto steps = load_last(folder.path(), states, other);
    of_first += steps == 1;
    if (!reached) CHECK(steps == 2);
  }
  CHECK(of_first > 20);
  CHECK(calls > of_first + 5);
}
