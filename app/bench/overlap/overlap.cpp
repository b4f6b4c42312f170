// lockstep bench overlap: measures what devices and copies do at the same time, as the chapter on automatic
// parallelism does, and answers its five exercises.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <optional>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/run.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/report/benchmark.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep {
namespace {

void add_overlap_flags(CLI::App& overlap, BenchOverlapOptions& options) {
  add_bench_flags(overlap, options.bench,
                  "Two devices or more (default: the first two GPUs, cuda:0x2 or cpux2)");
  constexpr int64_t kMaxCount = 1'000'000;
  overlap
      .add_option(
          "--size", options.size,
          fmt::format("Rows and columns of a matrix; exercise 2: the largest (default: {} on GPUs, {} with "
                      "a CPU)",
                      kChapterSize, kCpuSize))
      ->check(positive_int(kMaxCount));
  overlap
      .add_option("--iterations", options.iterations,
                  "Matmuls of one `run` (default: 50); exercises 1 and 2: independent ones (8); exercise "
                  "5: passes (4)")
      ->check(positive_int(kMaxCount));
  overlap.add_option("--exercise", options.exercise, "Run one of the chapter's five exercises instead")
      ->check(positive_int(kExercises));
  overlap
      .add_option("--trace", options.trace,
                  "Write a trace to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
}

Json settings_of(const OverlapPlan& plan) {
  Json devices = Json::array();
  for (const auto device : plan.list.devices) devices.push_back(device.str());
  return {{"devices", devices},
          {"threads", plan.list.threads},
          {"size", plan.size},
          {"iterations", plan.iterations},
          {"exercise", or_null(plan.exercise)}};
}

void introduce(const BenchReport& report, const OverlapPlan& plan) {
  report.note(fmt::format("devices    {}; a CPU device has {}", to_string(plan.list.devices),
                          counted(plan.list.threads, "thread")));
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
  const auto devices = make_overlap_devices(run.plan.list, run.plan.size, run.plan.seed);
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

void run_overlap(const BenchOverlapOptions& options) {
  const auto plan = plan_of(options);
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

}  // namespace

void setup_bench_overlap(CLI::App& bench) {
  add_benchmark(bench, "overlap", "What devices and copies do at the same time", add_overlap_flags,
                run_overlap);
}

}  // namespace lockstep
