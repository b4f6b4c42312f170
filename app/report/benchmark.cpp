#include <lockstep/app/report/benchmark.h>

#include <CLI/CLI.hpp>

#include <string>
#include <utility>

#include <lockstep/app/processes/join_world.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/report/report.h>

namespace lockstep {

void add_benchmark_alone(CLI::App& bench, const char* name, const char* summary,
                         const std::function<void(CLI::App& command)>& add_flags, std::function<void()> run) {
  auto* command = bench.add_subcommand(name, summary);
  add_flags(*command);
  command->callback([run = std::move(run), what = std::string("bench ") + name] {
    refuse_several_processes(what);
    run();
  });
}

void add_benchmark_in_world(CLI::App& bench, const char* name, const char* summary,
                            const std::function<void(CLI::App& command)>& add_flags,
                            std::function<void(TrainWorld& world)> run) {
  auto* command = bench.add_subcommand(name, summary);
  add_flags(*command);
  const auto processes = std::make_shared<ProcessFlags>();
  add_process_flags(*command, *processes);
  command->callback(
      [run = std::move(run), processes] { in_joined_world(*processes, BenchReport::kAwaited, run); });
}

}  // namespace lockstep
