#include <lockstep/app/processes/one_process.h>

#include <fmt/format.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// A launcher's variables that are not complete are no concern of a command without processes.
World launched_world(const Environment& environment) {
  try {
    return find_world({}, environment);
  } catch (const UsageError&) {
    return {};
  }
}

}  // namespace

void refuse_several_processes(const std::string& command, const Environment& environment) {
  const auto world = launched_world(environment);
  if (world.processes == 1) return;
  const auto launcher = world.launcher.empty() ? "the environment names" : world.launcher + " started";
  throw UsageError(
      fmt::format("{} runs in one process, but {} {}", command, launcher, world.processes),
      "start it without a launcher; only train, bench allreduce and bench scaling run in several processes");
}

}  // namespace lockstep
