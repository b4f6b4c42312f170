#include <lockstep/app/processes/process_flags.h>

#include <CLI/CLI.hpp>

#include <chrono>

#include <lockstep/app/cli/help_group.h>
#include <lockstep/app/cli/validators.h>

namespace lockstep {
namespace {

constexpr int kMaxProcesses = 1 << 20;
constexpr int kMaxSeconds = 1'000'000;

}  // namespace

void add_process_flags(CLI::App& command, ProcessFlags& options) {
  command
      .add_option(
          "--rank", options.world.rank,
          "This process among those that train together, from 0 (default: as torchrun, mpirun or srun "
          "say). Counts processes; each drives its own --devices")
      ->check(non_negative_int(kMaxProcesses));
  command
      .add_option("--world-size", options.world.world_size,
                  "Processes that train together (default: as the launcher says, else 1)")
      ->check(positive_int(kMaxProcesses));
  command
      .add_option("--master", options.world.master,
                  "Where the processes meet: process 0 listens there (default: as the launcher says)")
      ->type_name("HOST:PORT");
  command
      .add_option("--timeout", options.timeout,
                  "Seconds that a process waits for another one before it gives up")
      ->check(positive_int(kMaxSeconds));
  command
      .add_option(
          "--listen", options.listen,
          "Address on which this process listens (default: loopback if all processes are on one host, "
          "else the interface that leads to --master)")
      ->default_str("")
      ->type_name("ADDRESS");
  set_group(command, HelpGroup::kProcesses, {"--rank", "--world-size", "--master", "--timeout", "--listen"});
}

JoinOptions join_options(const ProcessFlags& flags) {
  return {.timeout = std::chrono::seconds(flags.timeout),
          .listen = flags.listen,
          .divide_cores = false};  // gather_members() divides them by the processes' replicas
}

}  // namespace lockstep
