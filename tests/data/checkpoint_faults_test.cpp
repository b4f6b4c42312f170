// A save that is killed or fails at any of its system calls leaves a whole checkpoint: the new one or the one
// before. The next save removes all that it left.
#include <lockstep/tests/catch.h>
#include <string>

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

// Saves step 2 as a run does that keeps one checkpoint: it is written, named, and the one before is removed.
void save_second(const fs::path& folder) {
  write_checkpoint(path_of(folder, 2), numbered(2));
  link_checkpoint(path_of(folder, 2), "last");
  remove_checkpoint(path_of(folder, 1));
}

void begin(const fs::path& folder) {
  write_checkpoint(path_of(folder, 1), numbered(1));
  link_checkpoint(path_of(folder, 1), "last");
}

// What a save that ended anywhere may have left. `failed`: it has thrown.
void check_left(const fs::path& folder) {
  const int first = step_of(path_of(folder, 1)), second = step_of(path_of(folder, 2));
  CHECK((first == 1 || second == 2));                     // the one before, or the new one
  if (fs::exists(path_of(folder, 1))) CHECK(first == 1);  // what has a name is whole
  if (fs::exists(path_of(folder, 2))) CHECK(second == 2);
  const int last = step_of(folder / "last");
  CHECK((last == 1 || last == 2));  // the link always leads to one of them
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
int fail_everywhere(Fault fault) {
  for (;; ++fault.call) {
    const TempFolder folder(in_memory());
    begin(folder.path());
    const auto run = run_with_fault([&] { save_second(folder.path()); }, fault);
    INFO("fault " << fault.kind << " (" << fault.error << ") at call " << fault.call);
    if (!run.reached) {
      CHECK(run.code == 0);
      CHECK(step_of(path_of(folder.path(), 2)) == 2);
      return fault.call;
    }
    CHECK(run.killed == (fault.kind == Fault::kKill));
    check_left(folder.path());
    if (fault.kind != Fault::kKill && run.code == 0) CHECK(step_of(path_of(folder.path(), 2)) == 2);
    check_next(folder.path());
  }
}

}  // namespace

TEST_CASE("a save killed at any system call leaves the new checkpoint or the one before") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  CHECK(fail_everywhere({.kind = Fault::kKill}) > 50);
}

TEST_CASE("a save whose system calls fail leaves the new checkpoint or the one before") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  const int error = GENERATE(ENOSPC, EIO, EINTR);
  CHECK(fail_everywhere({.kind = Fault::kError, .error = error}) > 30);
}

TEST_CASE("a save whose writes are short is complete") {
  if (!can_trace()) SKIP_CASE("ptrace is not allowed here");
  CHECK(fail_everywhere({.kind = Fault::kShortWrite}) > 3);
}
