#include <lockstep/app/bench/bench.h>

#include <CLI/CLI.hpp>

#include <lockstep/app/bench/allreduce.h>
#include <lockstep/app/bench/overlap.h>
#include <lockstep/app/bench/partition.h>
#include <lockstep/app/bench/scaling.h>
#include <lockstep/app/bench/step.h>

namespace lockstep {

void setup_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Measure what training on several devices is made of");
  setup_bench_overlap(*bench);
  setup_bench_allreduce(*bench);
  setup_bench_step(*bench);
  setup_bench_scaling(*bench);
  setup_bench_partition(*bench);
}

}  // namespace lockstep
