// From which checkpoint a run goes on, and in which folder, when it starts and when a launcher starts it
// again.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <optional>
#include <string>

#include <lockstep/app/checkpoint/kept_run.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/checkpoint/run_state.h>
#include <lockstep/tests/support/files.h>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

namespace {

TrainFlags resuming(const std::optional<std::string>& resume, const std::optional<std::string>& output) {
  TrainFlags flags;
  flags.recipe = "lenet";
  flags.resume = resume;
  flags.output = output;
  return flags;
}

// The step that the run goes on from; nothing for a run from the start.
std::optional<int64_t> step_of(TrainFlags flags, bool restart) {
  KeptRun kept;
  kept.open(flags, restart);
  CHECK(flags.resume.has_value() == kept.found.has_value());
  return kept.found ? std::optional(kept.found->state.trainer.steps) : std::nullopt;
}

}  // namespace

TEST_CASE("a run that a launcher starts again goes on from its own checkpoint, not from the named one") {
  const TempFolder folder;
  const auto first = run_with(folder / "first", {8}), second = run_with(folder / "second", {});
  const auto flags = resuming(first.checkpoint(8), second.path());
  CHECK(step_of(flags, /*restart=*/false) == 8);
  CHECK(step_of(flags, /*restart=*/true) == 8);  // it had no checkpoint yet
  for (const bool restart : {false, true}) {
    auto options = flags;
    KeptRun kept;
    kept.open(options, restart);
    CHECK(kept.reuses_folder == restart);  // what it has left there is its own
  }
  write_checkpoint(second.checkpoint(12), to_checkpoint(state_of(12)));
  CHECK(step_of(flags, /*restart=*/true) == 12);
  CHECK(step_of(flags, /*restart=*/false) == 8);
}

TEST_CASE("a run that a launcher starts again goes on in its folder, with --resume or without") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  CHECK_FALSE(step_of(resuming({}, run.path()), /*restart=*/true));
  CHECK_THROWS_AS(step_of(resuming({}, run.path()), /*restart=*/false), OutputError);
  write_checkpoint(run.checkpoint(4), to_checkpoint(state_of(4)));
  CHECK(step_of(resuming({}, run.path()), /*restart=*/true) == 4);
  CHECK(step_of(resuming("auto", run.path()), /*restart=*/true) == 4);
}

TEST_CASE(
    "a run that goes on from a named checkpoint goes on from a newer one of the same run when restarted") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {8});
  const auto flags = resuming(run.checkpoint(8), {});
  CHECK(step_of(flags, /*restart=*/false) == 8);
  CHECK(step_of(flags, /*restart=*/true) == 8);
  write_checkpoint(run.checkpoint(12), to_checkpoint(state_of(12)));
  CHECK(step_of(flags, /*restart=*/true) == 12);
  CHECK_THROWS_AS(step_of(flags, /*restart=*/false), UsageError);
}
