#include <lockstep/app/bench/bench.h>

#include <CLI/CLI.hpp>

#include <lockstep/app/bench/allreduce/allreduce.h>
#include <lockstep/app/bench/overlap/overlap.h>
#include <lockstep/app/bench/partition/partition.h>
#include <lockstep/app/bench/scaling/scaling.h>
#include <lockstep/app/bench/step/step.h>

namespace lockstep {

void setup_bench(CLI::App& app) {
  auto* bench = app.add_subcommand("bench", "Measure the parts of training on several devices");
  setup_bench_overlap(*bench);
  setup_bench_allreduce(*bench);
  setup_bench_step(*bench);
  setup_bench_scaling(*bench);
  setup_bench_partition(*bench);
}

}  // namespace lockstep
