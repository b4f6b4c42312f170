// Folders of runs, and which checkpoint a run goes on from.
#include <lockstep/tests/catch.h>

#include <unistd.h>

#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/files/nearest_path.h>
#include <lockstep/app/train/checkpoint/folder_lock.h>
#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/app/train/checkpoint/run_state.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_folder.h>
#include <lockstep/tests/support/read_only.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

void damage(const RunFolder& run, int64_t step) { write_file(run.checkpoint(step) / "state.json", "{}"); }

struct Warnings {
  std::vector<std::string> texts;
  std::function<void(const std::string&)> add = [this](const std::string& text) { texts.push_back(text); };
};

}  // namespace

TEST_CASE("runs are numbered, and a folder in use is not used again") {
  const TempFolder folder;
  const InFolder here(folder.path());
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0001");
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0002");
  CHECK(create_numbered_run("lenet-b").path() == "runs/lenet-b-0001");
  fs::create_directory("runs/lenet-0041");
  write_file("runs/lenet-0050", "a file");
  CHECK(create_numbered_run("lenet").path() == "runs/lenet-0042");
  const auto runs = numbered_runs("lenet");
  REQUIRE(runs.size() == 4);
  CHECK(runs.front().path() == "runs/lenet-0042");
  CHECK(runs.back().path() == "runs/lenet-0001");
  CHECK_THROWS_AS(runs.front().create(), OutputError);  // it has its folder of checkpoints
  runs.front().create(/*again=*/true);
  CHECK_THROWS_AS(RunFolder("runs/lenet-0050").create(), OutputError);
}

TEST_CASE("the nearest path of a folder that is not there is what stands in its way, or holds it") {
  const TempFolder folder;
  write_file(folder / "file", "");
  fs::create_symlink(folder / "nowhere", folder / "link");
  const fs::path cases[][2] = {{folder.path(), folder.path()},
                               {folder / "new" / "run", folder.path()},
                               {folder / "file" / "run", folder / "file"},
                               {folder / "link", folder / "link"},
                               {folder / "link" / "run", folder / "link"},
                               {"/nowhere", "/"}};
  for (const auto& [path, nearest] : cases) CHECK(nearest_path(path) == nearest);
  const InFolder inside(folder.path());
  CHECK(fs::equivalent(nearest_path("new/run"), folder.path()));
}

TEST_CASE("a folder that cannot be made or written is found before anything is made") {
  const TempFolder folder;
  RunFolder(folder / "new/run").require_writable();
  RunFolder(folder.path()).require_writable();
  write_file(folder / "file", "");
  CHECK_THROWS_WITH(RunFolder(folder / "file/run").require_writable(),
                    "cannot make the run folder '" + (folder / "file/run").string() + "': '" +
                        (folder / "file").string() + "' is a file");
  CHECK_THROWS_WITH(RunFolder(folder / "file").require_writable(),
                    "cannot make the run folder '" + (folder / "file").string() + "': it is a file");
  fs::create_symlink(folder / "nowhere", folder / "link");
  CHECK_THROWS_WITH(
      RunFolder(folder / "link").require_writable(),
      "cannot make the run folder '" + (folder / "link").string() + "': it is a link that leads nowhere");
  fs::create_symlink("loop", folder / "loop");
  CHECK_THROWS_WITH(RunFolder(folder / "loop").require_writable(),
                    EndsWith("/loop': Too many levels of symbolic links"));
  CHECK_THROWS_WITH(RunFolder(folder / std::string(300, 'x')).require_writable(),
                    EndsWith("': File name too long"));
  const TempFolder run;
  write_file(run / "checkpoints", "");
  CHECK_THROWS_WITH(RunFolder(run.path()).require_writable(),
                    "cannot make the run folder '" + (run / "checkpoints").string() + "': it is a file");
  if (::access("/proc/sys", W_OK) != 0) {
    CHECK_THROWS_WITH(RunFolder("/proc/sys/run").require_writable(),
                      StartsWith("cannot make the run folder '/proc/sys/run': "));
  }
  CHECK(std::distance(fs::directory_iterator(folder.path()), {}) == 3);
}

TEST_CASE("a folder that only other users may write to is found") {
  const TempFolder folder;
  fs::create_directories(folder / "run/checkpoints");
  const ReadOnly read_only({folder.path(), folder / "run", folder / "run/checkpoints"});
  CHECK_THROWS_WITH(RunFolder(folder / "run").require_writable(),
                    "cannot write to the run folder '" + (folder / "run").string() + "': Permission denied");
  CHECK_THROWS_WITH(RunFolder(folder / "new").require_writable(),
                    "cannot make the run folder '" + (folder / "new").string() + "': Permission denied");
}

TEST_CASE("a copy of a run that followed its links is found before anything is trained") {
  const TempFolder folder;
  const RunFolder run(folder / "run");
  run.create();
  fs::create_directory_symlink("step-00000001",
                               run.checkpoints() / "last");  // leads nowhere: a link all the same
  run.require_writable();
  for (const auto* name : {"last", "best"}) {
    fs::remove(run.checkpoints() / name);
    fs::create_directory(run.checkpoints() / name);
    CHECK_THROWS_WITH(run.require_writable(), ContainsSubstring(std::string(name) + "' is a folder"));
    fs::remove(run.checkpoints() / name);
    write_file(run.checkpoints() / name, "");
    CHECK_THROWS_WITH(run.require_writable(), ContainsSubstring(std::string(name) + "' is a file"));
    fs::remove(run.checkpoints() / name);
  }
  run.require_writable();
}

TEST_CASE("a new numbered run needs a folder of runs that can be made or written to") {
  const TempFolder folder;
  const InFolder here(folder.path());
  require_writable_runs();
  write_file("runs", "");
  CHECK_THROWS_WITH(require_writable_runs(), "cannot make the run folder 'runs': it is a file");
}

TEST_CASE("a run goes on from its newest checkpoint that verifies; damaged ones are named") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8, 16, 123456789});
  const auto step_of = [&](const std::string& resume, const std::optional<std::string>& output = {}) {
    const auto found = find_checkpoint(resume, output, "lenet", warnings.add);
    return found ? found->state.trainer.steps : -1;
  };
  CHECK(step_of(run.path()) == 123456789);
  CHECK(step_of("auto", run.path()) == 123456789);
  CHECK(warnings.texts.empty());
  damage(run, 123456789);
  CHECK(step_of(run.path()) == 16);
  REQUIRE(warnings.texts.size() == 1);
  CHECK_THAT(warnings.texts[0],
             ContainsSubstring("step-123456789' is damaged") && ContainsSubstring("skipped"));
  damage(run, 16);
  damage(run, 8);
  CHECK_THROWS_WITH(step_of(run.path()), ContainsSubstring("has no whole checkpoint"));
  CHECK_THROWS_WITH(step_of("auto", run.path()), ContainsSubstring("none of the 3 checkpoints in"));
  CHECK_THROWS_WITH(step_of(folder / "none"), ContainsSubstring("there is no such folder"));

  run.set_aside_after(8);
  CHECK(run.steps() == std::vector<int64_t>{8});
  CHECK(fs::exists(run.checkpoint(16).native() + ".damaged"));
}

TEST_CASE("--resume auto finds the newest run of its name that has a checkpoint") {
  const TempFolder folder;
  const InFolder here(folder.path());
  Warnings warnings;
  CHECK_FALSE(find_checkpoint("auto", std::nullopt, "lenet", warnings.add));
  run_with("runs/lenet-0001", {5});
  run_with("runs/lenet-0002", {3, 4});
  run_with("runs/lenet-0003", {});
  run_with("runs/other-0009", {9});
  const auto found = find_checkpoint("auto", std::nullopt, "lenet", warnings.add);
  REQUIRE(found);
  CHECK(found->run.path() == "runs/lenet-0002");
  CHECK(found->state.trainer.steps == 4);
}

TEST_CASE("a named checkpoint must be its run's newest, unless the run goes on in a new folder") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8, 16});
  link_checkpoint(run.checkpoint(16), "last");
  const auto last = find_checkpoint(run.checkpoints() / "last", std::nullopt, "lenet", warnings.add);
  REQUIRE(last);
  CHECK(last->state.trainer.steps == 16);
  CHECK(fs::equivalent(last->run.path(), run.path()));
  CHECK_THROWS_WITH(find_checkpoint(run.checkpoint(8), std::nullopt, "lenet", warnings.add),
                    ContainsSubstring("is of step 8, but the run has a checkpoint of step 16"));
  CHECK_THROWS_WITH(find_checkpoint(run.checkpoint(8), run.path().native(), "lenet", warnings.add),
                    ContainsSubstring("is of step 8, but the run has a checkpoint of step 16"));
  CHECK(find_checkpoint(run.checkpoint(8), "new", "lenet", warnings.add)->state.trainer.steps == 8);
  fs::rename(run.checkpoint(8), folder / "moved");
  CHECK_THROWS_WITH(find_checkpoint(folder / "moved", std::nullopt, "lenet", warnings.add),
                    ContainsSubstring("is in no run folder"));
}

TEST_CASE("a named checkpoint of the current folder's run is found, and the run's folder can be locked") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8});
  link_checkpoint(run.checkpoint(8), "last");
  const InFolder in_run(run.path());
  for (const auto& name : {std::string("checkpoints/last"), (run.checkpoints() / "last").string()}) {
    const auto found = find_checkpoint(name, std::nullopt, "lenet", warnings.add);
    REQUIRE(found);
    CHECK(fs::equivalent(found->run.path(), run.path()));
    found->run.require_writable();
    const FolderLock lock(found->run.path());
    CHECK_THROWS_WITH(FolderLock(run.path()), ContainsSubstring("another process writes to the run folder"));
  }
}

TEST_CASE("one process at a time writes to a run's folder") {
  const TempFolder folder;
  {
    const FolderLock lock(folder.path());
    CHECK_THROWS_WITH(FolderLock(folder.path()),
                      ContainsSubstring("another process writes to the run folder"));
  }
  CHECK_NOTHROW(FolderLock(folder.path()));
}

TEST_CASE("a run does not go on from a checkpoint that is no longer its newest") {
  const TempFolder folder;
  Warnings warnings;
  const auto run = run_with(folder / "r", {8, 16});
  const auto found = find_checkpoint("auto", run.path().native(), "lenet", warnings.add);
  REQUIRE(found);
  require_unchanged(found->run, found->steps);
  write_checkpoint(run.checkpoint(24), to_checkpoint(state_of(24)));
  CHECK_THROWS_WITH(require_unchanged(found->run, found->steps),
                    ContainsSubstring("another process has written checkpoints"));
  // Nor does one begin from the start where there are some now.
  const std::vector<int64_t> none;
  require_unchanged(run_with(folder / "empty", {}), none);
  CHECK_THROWS_AS(require_unchanged(run, none), OutputError);
}
