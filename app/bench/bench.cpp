#include <lockstep/app/bench/bench.h>

#include <CLI/CLI.hpp>

namespace lockstep {

// Each is in the file of its name.
void setup_bench_allreduce(CLI::App& bench);
void setup_bench_overlap(CLI::App& bench);
void setup_bench_partition(CLI::App& bench);
void setup_bench_scaling(CLI::App& bench);
void setup_bench_step(CLI::App& bench);

// In the order of the help.
void setup_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Measure the parts of training on several devices");
  for (auto* setup : {setup_bench_overlap, setup_bench_allreduce, setup_bench_step, setup_bench_scaling,
                      setup_bench_partition}) {
    setup(*bench);
  }
}

}  // namespace lockstep
