// A benchmark as a subcommand of `bench`: in a file of its own, a struct of options, a function that adds its
// flags, one that measures, and
//
//   void setup_bench_copies(CLI::App& bench) {
//     add_benchmark(bench, "copies", "Copies between devices", add_flags, run);
//   }
//
// report.h has its tables, repetitions, checks and files.
#pragma once

#include <functional>
#include <memory>

namespace CLI {
class App;
}

namespace lockstep {

struct TrainWorld;

// The subcommand of a benchmark for one process: UsageError where a launcher has started several.
void add_benchmark_alone(CLI::App& bench, const char* name, const char* summary,
                         const std::function<void(CLI::App& command)>& add_flags, std::function<void()> run);
// The subcommand of a benchmark for several processes, with their flags. Every process of the world calls
// `run`; a process alone is a world, too.
void add_benchmark_in_world(CLI::App& bench, const char* name, const char* summary,
                            const std::function<void(CLI::App& command)>& add_flags,
                            std::function<void(TrainWorld& world)> run);

// The same for options that `add_flags` binds to flags and `run` gets: with a world, or for one process.
template <class Options>
void add_benchmark(CLI::App& bench, const char* name, const char* summary,
                   void (*add_flags)(CLI::App& command, Options& options),
                   void (*run)(const Options& options)) {
  const auto options = std::make_shared<Options>();
  add_benchmark_alone(
      bench, name, summary, [&](CLI::App& command) { add_flags(command, *options); },
      [options, run] { run(*options); });
}
template <class Options>
void add_benchmark(CLI::App& bench, const char* name, const char* summary,
                   void (*add_flags)(CLI::App& command, Options& options),
                   void (*run)(const Options& options, TrainWorld& world)) {
  const auto options = std::make_shared<Options>();
  add_benchmark_in_world(
      bench, name, summary, [&](CLI::App& command) { add_flags(command, *options); },
      [options, run](TrainWorld& world) { run(*options, world); });
}

}  // namespace lockstep
