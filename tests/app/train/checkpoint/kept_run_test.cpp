// From which checkpoint a run goes on, and in which folder, when it starts and when a launcher starts it
// again.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/kept_run.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/temporary_file.h>
#include <lockstep/support/stopwatch.h>
#include <lockstep/tests/app/train/checkpoint/run_state.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_folder.h>
#include <lockstep/tests/support/read_only.h>

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
std::optional<int64_t> step_of(TrainFlags flags, bool restart, const std::string& launch = "one") {
  KeptRun kept;
  kept.open(flags, World{.launch = launch, .restart = restart ? 1 : 0});
  CHECK(flags.resume.has_value() == kept.found.has_value());
  return kept.found ? std::optional(kept.found->state.trainer.steps) : std::nullopt;
}

}  // namespace

TEST_CASE("a run that a launcher starts again goes on from its own checkpoint, not from the named one") {
  const TempFolder folder;
  const auto first = run_with(folder / "first", {8}), second = run_with(folder / "second", {});
  second.write_launch("one");
  const auto flags = resuming(first.checkpoint(8), second.path());
  CHECK(step_of(flags, /*restart=*/false) == 8);
  CHECK(step_of(flags, /*restart=*/true) == 8);  // it had no checkpoint yet
  for (const bool restart : {false, true}) {
    auto options = flags;
    KeptRun kept;
    kept.open(options, World{.launch = "one", .restart = restart ? 1 : 0});
    CHECK(kept.reuses_folder == restart);  // what it has left there is its own
  }
  write_checkpoint(second.checkpoint(12), to_checkpoint(state_of(12)));
  CHECK(step_of(flags, /*restart=*/true) == 12);
  CHECK(step_of(flags, /*restart=*/false) == 8);
}

TEST_CASE("a run that a launcher starts again goes on in its folder, with --resume or without") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {});
  run.write_launch("one");
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
  run.write_launch("one");
  const auto flags = resuming(run.checkpoint(8), {});
  CHECK(step_of(flags, /*restart=*/false) == 8);
  CHECK(step_of(flags, /*restart=*/true) == 8);
  write_checkpoint(run.checkpoint(12), to_checkpoint(state_of(12)));
  CHECK(step_of(flags, /*restart=*/true) == 12);
  CHECK_THROWS_AS(step_of(flags, /*restart=*/false), UsageError);
}

TEST_CASE("a checkpoint that was removed since it was written is not announced") {
  const TempFolder folder;
  const RunFolder run(folder / "r");
  run.create();
  KeptRun kept;
  kept.plots = std::make_unique<RunPlots>([] {});
  kept.checkpoints = std::make_unique<CheckpointWriter>(run, WriterOptions{});
  kept.checkpoints->save(state_of(8), std::nullopt, Stopwatch());
  kept.checkpoints->finish();
  fs::remove_all(run.checkpoint(8));
  std::string told;
  {
    const MessageCopies copies([&](std::string_view text) { told += text; });
    kept.finish(/*quiet=*/false);
  }
  CHECK_THAT(told, Catch::Matchers::ContainsSubstring("warning: the checkpoint of step 8 is not in '" +
                                                      run.checkpoints().native() + "' any more"));
}

TEST_CASE("a run that others may read only is gone on from in a new folder, and not in its own") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {8});
  fs::create_directory(folder / "new");
  fs::permissions(folder / "new", fs::perms::all);
  auto flags = resuming(run.checkpoint(8), (folder / "new/run").string());
  const InFolder here(folder.path());  // others may not read the one that the tests run in
  const ReadOnly read_only({folder.path(), run.path(), run.checkpoints()});
  KeptRun kept;
  kept.open(flags, World{});
  CHECK(kept.found);
  flags.output = run.path();
  CHECK_THROWS_WITH(KeptRun().open(flags, World{}),
                    "cannot write to the run folder '" + run.path().native() + "': Permission denied");
}

TEST_CASE("what a killed process has left in a run's folders is removed, not what a living one writes") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {4});
  fs::create_directory(run.path() / "plots");
  const std::vector<fs::path> folders = {run.path(), run.checkpoints(), run.path() / "plots"};
  const pid_t child = ::fork();
  if (child == 0) {
    for (const auto& place : folders) create_temporary(place);
    create_temporary_folder(run.checkpoints());
    ::raise(SIGKILL);
  }
  ::waitpid(child, nullptr, 0);
  const auto living = create_temporary(run.path());
  const auto temporaries = [&] {
    size_t count = 0;
    for (const auto& entry : fs::recursive_directory_iterator(run.path())) {
      count += entry.path().filename().native().starts_with(".lockstep-");
    }
    return count;
  };
  REQUIRE(temporaries() == 5);
  run.remove_stale_temporaries();
  CHECK(temporaries() == 1);
  CHECK(fs::exists(living.path));
  CHECK(fs::exists(run.checkpoint(4)));
  ::close(living.fd);
}

TEST_CASE("a launch that is started again does not go on in the folder of another one") {
  const TempFolder folder;
  const auto run = run_with(folder / "r", {4});
  write_file(run.path() / "env.json", "{}");
  run.write_launch("one");
  CHECK(step_of(resuming({}, run.path()), /*restart=*/true, "one") == 4);
  CHECK_THROWS_AS(step_of(resuming({}, run.path()), /*restart=*/true, ""), OutputError);
  CHECK_THROWS_AS(step_of(resuming({}, run.path()), /*restart=*/true, "two"), OutputError);
  CHECK(step_of(resuming("auto", run.path()), /*restart=*/true, "two") == 4);  // the user wants this one

  const auto unnamed = run_with(folder / "unnamed", {4});  // of a run without restarts
  CHECK_THROWS_AS(step_of(resuming({}, unnamed.path()), /*restart=*/true, "one"), OutputError);
  const RunFolder killed(folder / "killed");  // just after it had made its folder
  killed.create();
  write_file(killed.path() / ".lockstep-host-1-1.tmp", "");
  CHECK_FALSE(step_of(resuming({}, killed.path()), /*restart=*/true, "one"));
}

TEST_CASE("a launch that is started again goes on in its own numbered run only") {
  const TempFolder folder;
  const InFolder here(folder.path());
  const auto flags_after = [](const std::string& launch) {
    auto flags = resuming({}, {});
    flags.checkpoint_every = "1";
    KeptRun kept;
    kept.open(flags, World{.launch = launch, .restart = 1});
    if (kept.found) flags.output = "step " + std::to_string(kept.found->state.trainer.steps);
    return flags;
  };
  const auto foreign = [] {
    const auto run = create_numbered_run("lenet");
    write_checkpoint(run.checkpoint(4), to_checkpoint(state_of(4)));
    return run;
  };
  foreign();
  CHECK_FALSE(flags_after("one").output);  // it gets a new number
  CHECK_FALSE(flags_after("one").resume);
  const auto own = create_numbered_run("lenet");
  own.write_launch("one");
  CHECK(flags_after("one").output == own.path().native());  // it was killed before its first checkpoint
  foreign();
  write_checkpoint(own.checkpoint(8), to_checkpoint(state_of(8)));
  CHECK(flags_after("one").output == "step 8");
  CHECK_FALSE(flags_after("two").output);
  CHECK_FALSE(flags_after("").output);
}
