// A save that is killed or fails at any of its system calls leaves a whole checkpoint: the new one or the one
// before, if there was one. The next save removes all that it left.
#include <lockstep/tests/catch.h>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/data/checkpoint.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/in_memory.h>
#include <lockstep/tests/support/syscall_faults.h>

using namespace lockstep;
using namespace lockstep::testing;
namespace fs = std::filesystem;

namespace {

Checkpoint numbered(int step) {
  Checkpoint checkpoint;
  checkpoint.tensors["model.safetensors"] = {.tensors = {{"w", torch::full({300}, step)}}, .metadata = {}};
  checkpoint.texts["state.json"] = std::to_string(step);
  return checkpoint;
}

// The step of a checkpoint that verifies; -1: none.
int step_of(const fs::path& folder) {
  try {
    const auto checkpoint = read_checkpoint(folder);
    const int step = std::stoi(checkpoint.texts.at("state.json"));
    const auto& weight = checkpoint.tensors.at("model.safetensors").tensors.at(0).tensor;
    return weight.eq(step).all().item<bool>() ? step : -2;
  } catch (const WeightsError&) {
    return -1;
  }
}

fs::path path_of(const fs::path& folder, int step) { return folder / ("step-" + std::to_string(step)); }

void save(const fs::path& folder, int name, int step) {
  write_checkpoint(path_of(folder, name), numbered(step));
  link_checkpoint(path_of(folder, name), "last");
}

// A save of step 2. The name of its folder is path_of(name).
struct Save {
  std::string what;
  int name = 2;
  std::function<void(const fs::path&)> begin = [](const auto& folder) { save(folder, 1, 1); };
  std::function<void(const fs::path&)> run = [](const auto& folder) { save(folder, 2, 2); };
};

std::vector<Save> saves() {
  return {{.what = "the first one", .begin = [](const auto&) {}},
          {.what = "of a run that keeps one checkpoint: the one before is removed",
           .run =
               [](const auto& folder) {
                 save(folder, 2, 2);
                 remove_checkpoint(path_of(folder, 1));
               }},
          {.what = "in place of a checkpoint of the same name", .name = 1, .run = [](const auto& folder) {
             save(folder, 1, 2);
           }}};
}

// Checks the files that a save that ended anywhere has left.
void check_left(const fs::path& folder, bool had_one) {
  const int first = step_of(path_of(folder, 1)), second = step_of(path_of(folder, 2));
  if (had_one) CHECK((first > 0 || second > 0));         // the one before, or the new one
  if (fs::exists(path_of(folder, 1))) CHECK(first > 0);  // what has a name is whole
  if (fs::exists(path_of(folder, 2))) CHECK(second == 2);
  if (had_one || fs::is_symlink(folder / "last"))
    CHECK(step_of(folder / "last") > 0);  // it leads to one of them
}

// The next start saves, and nothing of the broken save is left.
void check_next(const fs::path& folder) {
  write_checkpoint(path_of(folder, 3), numbered(3));
  for (const auto& entry : fs::directory_iterator(folder)) {
    INFO(entry.path());
    CHECK(entry.path().filename().native().find(".tmp") == std::string::npos);
  }
  CHECK(step_of(path_of(folder, 3)) == 3);
}

// Returns the number of calls at which the fault was made.
int fail_everywhere(const Save& save, Fault fault) {
  for (;; ++fault.call) {
    const TempFolder folder(in_memory());
    save.begin(folder.path());
    const bool had_one = fs::exists(folder / "last");
    const auto run = run_with_fault([&] { save.run(folder.path()); }, fault);
    INFO("the save " << save.what << ": fault " << fault.kind << " (" << fault.error << ") at call "
                     << fault.call);
    const auto saved = path_of(folder.path(), save.name);
    if (!run.reached) {
      CHECK(run.code == 0);
      CHECK(step_of(saved) == 2);
      return fault.call;
    }
    CHECK(run.killed == (fault.kind == Fault::kKill));
    check_left(folder.path(), had_one);
    if (fault.kind != Fault::kKill && run.code == 0) CHECK(step_of(saved) == 2);
    check_next(folder.path());
  }
}

}  // namespace

TEST_CASE("a save killed at any system call leaves the new checkpoint or the one before") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  for (const auto& save : saves()) CHECK(fail_everywhere(save, {.kind = Fault::kKill}) > 30);
}

TEST_CASE("a save whose system calls fail leaves the new checkpoint or the one before") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  const int error = GENERATE(ENOSPC, EIO, EINTR);
  for (const auto& save : saves()) CHECK(fail_everywhere(save, {.kind = Fault::kError, .error = error}) > 20);
}

TEST_CASE("a save whose writes are short is complete") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  for (const auto& save : saves()) CHECK(fail_everywhere(save, {.kind = Fault::kShortWrite}) > 2);
}
