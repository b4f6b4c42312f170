#include <lockstep/app/bench/overlap/overlap.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <memory>
#include <optional>

#include <lockstep/app/bench/overlap/exercises.h>
#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/plan.h>
#include <lockstep/app/bench/overlap/run.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/processes/one_process.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep {
namespace {

Json settings_of(const OverlapPlan& plan) {
  Json devices = Json::array();
  for (const auto device : plan.devices) devices.push_back(device.str());
  return {{"devices", devices},
          {"threads", plan.threads},
          {"size", plan.size},
          {"iterations", plan.iterations},
          {"exercise", plan.exercise ? Json(*plan.exercise) : Json()}};
}

void introduce(const BenchReport& report, const OverlapPlan& plan) {
  report.note(fmt::format("devices    {}; a CPU device has {}", to_string(plan.devices),
                          counted(plan.threads, "thread")));
  if (plan.exercise) return;
  report.note(fmt::format(
      "run        {} matmuls of a {} x {} float matrix with itself{}", plan.iterations, plan.size, plan.size,
      plan.size != kChapterSize
          ? fmt::format(" (the chapter: {} of {} on two GPUs)", kChapterIterations, kChapterSize)
          : ""));
  report.note("time       median over repetitions; IQR: interquartile range / median");
  report.note(
      "hidden     (compute + copy - together) / the shorter part; / longer: together / the longer part");
  report.note(
      fmt::format("memory     results and copies lie in rings of {}, touched before anything is timed",
                  OverlapDevice::kSlots));
}

void run_experiments(OverlapRun& run) {
  auto devices = make_overlap_devices(run.plan.devices, run.plan.threads, run.plan.size, run.plan.seed);
  compare_devices(run, devices);
  run.report.stop_if_interrupted("after the devices");
  compare_copies(run, devices);
  run.report.stop_if_interrupted("after the copies");
  compare_all_at_once(run, devices);
  run.report.stop_if_interrupted("after all at once");
  compare_links(run, devices);
  run.report.stop_if_interrupted("after the links");
  if (run.trace) run_two_layer_network(run, devices);
}

}  // namespace

void setup_bench_overlap(CLI::App& bench) {
  auto* overlap = bench.add_subcommand("overlap", "What devices and copies do at the same time");
  auto options = std::make_shared<BenchOverlapOptions>();
  add_bench_flags(*overlap, options->bench,
                  "Two devices or more (default: the first two GPUs, cuda:0x2 or cpux2)");
  constexpr int64_t kMaxCount = 1'000'000;
  overlap
      ->add_option(
          "--size", options->size,
          fmt::format("Rows and columns of a matrix; exercise 2: the largest (default: {} on GPUs, {} with "
                      "a CPU)",
                      kChapterSize, kCpuSize))
      ->check(positive_int(kMaxCount));
  overlap
      ->add_option("--iterations", options->iterations,
                   "Matmuls of one `run` (default: 50); exercises 1 and 2: independent ones (8); exercise "
                   "5: passes (4)")
      ->check(positive_int(kMaxCount));
  overlap->add_option("--exercise", options->exercise, "Run one of the chapter's five exercises instead")
      ->check(positive_int(kExercises));
  overlap
      ->add_option("--trace", options->trace,
                   "Write a trace to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
  overlap->callback([options] {
    refuse_several_processes("bench overlap");
    run_bench_overlap(*options);
  });
}

void run_bench_overlap(const BenchOverlapOptions& options) {
  const auto plan = plan_of(options);
  need_memory(plan);
  check_distinct_files({{"--json", options.bench.json}, {"--trace", options.trace}});
  std::optional<AtomicFile> trace_file;
  if (options.trace) trace_file.emplace(*options.trace, options.bench.overwrite);
  BenchReport report("overlap", options.bench, settings_of(plan));
  introduce(report, plan);
  Trace trace;
  OverlapRun run{.report = report, .plan = plan, .trace = trace_file ? &trace : nullptr};
  const auto keep_trace = [&] {
    if (!trace_file) return;
    write_chrome_trace(trace, *trace_file, warn, process_names(plan));
    report.note("trace written to " + *options.trace);
  };
  report.run([&] {
    try {
      plan.exercise ? run_exercise(run) : run_experiments(run);
    } catch (const Error&) {  // a signal, or standard output is closed
      keep_trace();
      throw;
    }
    keep_trace();
  });
}

}  // namespace lockstep
