// lockstep bench step: the time of a training step and of its phases.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>

#include <lockstep/app/bench/step/layers.h>
#include <lockstep/app/bench/step/peak.h>
#include <lockstep/app/bench/step/phases.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/report/benchmark.h>
#include <lockstep/app/report/report.h>
#include <lockstep/app/report/timed_training.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/models/costs.h>
#include <lockstep/models/factory.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kRepetitionSeconds = .5;  // of one repetition
constexpr int64_t kMostTraced = 5'000;     // steps of all replicas together: a Trace holds their events

struct BenchStepOptions : BenchTrainOptions {
  int64_t iterations = 0;  // steps per repetition; 0: as many as take half a second
};

struct Measured {
  TrainPlan plan;
  Seconds seconds;  // per step
  TracedPhases phases;
  double peak = 0;  // operations per second
  bool agree = false;
};

int64_t steps_of(const BenchStepOptions& options, TimedTraining& training) {
  const auto fitting = steps_per_repetition(training, kRepetitionSeconds);
  return options.iterations > 0 ? options.iterations : fitting;
}

Seconds time_steps(const BenchReport& report, const BenchStepOptions& options, const TrainPlan& plan,
                   bool& agree) {
  TimedTraining training(plan);
  const auto steps = steps_of(options, training);
  const auto seconds = report.in_turns({[&] { return training.seconds_per_step(steps); }}).front();
  agree = replicas_agree(training);
  return seconds;
}

// Takes steps of its own, because with a trace a GPU does not replay whole steps.
TracedPhases trace_steps(const BenchStepOptions& options, const TrainPlan& plan) {
  Trace trace;
  TimedTraining training(plan, &trace);
  const auto steps = std::clamp<int64_t>(kMostTraced / plan.world_size(), 1, steps_of(options, training));
  training.trainer().take_sums();
  const auto before = trace.seconds();
  training.seconds_per_step(steps);
  trace.resolve();
  auto events = trace.events();
  std::erase_if(events, [&](const auto& event) { return event.begin < before; });
  std::vector<Trace::Track> tracks;
  for (const auto& device : plan.trainer.devices) {
    tracks.push_back(device.is_cpu() ? Trace::Track::kCompute : Trace::Track::kDeviceCompute);
  }
  return phases_of(std::move(events), tracks, steps);
}

// Checks the memory too. With --in-flight 2 two trainers are alive at a time.
TrainPlan plan_for(const BenchStepOptions& options, const std::vector<torch::Device>& devices,
                   const std::optional<LoadedData>& data) {
  auto plan = plan_on(options, devices, threads_for(options.bench, devices.size()), data);
  need_memory_for(std::vector<TrainPlan>(options.train.trainer.in_flight == 2 ? 2 : 1, plan));
  return plan;
}

Measured measure(const BenchReport& report, const BenchStepOptions& options, const TrainPlan& plan) {
  Measured measured{.plan = plan, .seconds = {}, .phases = {}};
  measured.seconds = time_steps(report, options, plan, measured.agree);
  measured.phases = trace_steps(options, plan);
  measured.peak =
      measured_peak(plan.trainer.devices, replica_threads(plan.trainer), plan.trainer.replica.precision);
  return measured;
}

std::vector<Column> step_columns(const std::string& row_noun) {
  return {{.key = "devices", .title = "devices", .width = 12, .digits = kText},
          {.key = "model", .title = "model", .width = 8, .digits = kText},
          {.key = "precision", .title = "arithmetic", .digits = kText},
          {.key = "batch_size", .title = "batch", .unit = row_noun + "s", .width = 8},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "images_per_second", .title = "speed", .unit = row_noun + "s/s", .width = 9},
          {.key = "gflops", .title = "arithmetic", .unit = "GFLOP/s", .digits = 1},
          {.key = "peak_gflops", .title = "peak", .unit = "GFLOP/s", .width = 9, .digits = 1},
          {.key = "mfu", .title = "MFU", .unit = "%", .width = 6, .digits = 1}};
}

// Rows per step.
int64_t rows_of(const TrainPlan& plan) { return std::min(plan.batch_size, plan.data.set.train.rows); }

double images_per_second(const Measured& measured) {
  return static_cast<double>(rows_of(measured.plan)) / median(measured.seconds);
}

double operations_per_second(const Measured& measured) {
  return images_per_second(measured) * static_cast<double>(costs_of(measured.plan.spec(), torch::kCPU).flops);
}

// Percent of the measured peak. Empty with too few repetitions.
std::optional<double> mfu(const Measured& measured) {
  if (measured.seconds.size() < kRatioRepeats) return std::nullopt;
  return 100 * operations_per_second(measured) / measured.peak;
}

Json step_row(const Measured& measured) {
  const auto& plan = measured.plan;
  auto row = times_row({{"devices", spec_of(plan.trainer.devices)},
                        {"threads", replica_threads(plan.trainer)},
                        {"model", plan.model},
                        {"precision", name_of(kPrecisionNames, plan.trainer.replica.precision)},
                        {"batch_size", rows_of(plan)},
                        {"lr", plan.trainer.lr.lr}},
                       measured.seconds, kMilliseconds);
  row["images_per_second"] = static_cast<int64_t>(images_per_second(measured));
  row["gflops"] = operations_per_second(measured) / 1e9;
  row["peak_gflops"] = measured.peak / 1e9;
  row["mfu"] = or_null(mfu(measured));
  return row;
}

std::vector<Column> phase_columns() {
  return {{.key = "devices", .title = "devices", .width = 12, .digits = kText},
          {.key = "phase", .title = "phase", .width = 12, .digits = kText},
          {.key = "ms", .title = "time", .unit = "ms", .width = 8, .digits = 3},
          {.key = "share", .title = "share", .unit = "%", .width = 6, .digits = 1}};
}

std::vector<std::pair<const char*, double>> named(const TracedPhases& phases) {
  return {{"data", phases.data},
          {"forward", phases.forward},
          {"backward", phases.backward},
          {"exposed sync", phases.sync},
          {"update", phases.update}};
}

// Times the same steps with the host waiting for each and with two in flight, alternating.
void compare_in_flight(BenchReport& report, const BenchStepOptions& options, TrainPlan plan) {
  auto waiting = plan;
  waiting.trainer.in_flight = 1;
  plan.trainer.in_flight = 2;
  TimedTraining one(waiting), two(plan);
  const auto steps = std::max(steps_of(options, one), steps_of(options, two));
  const auto seconds = report.in_turns(
      {[&] { return one.seconds_per_step(steps); }, [&] { return two.seconds_per_step(steps); }});
  const auto devices = spec_of(plan.trainer.devices);
  const auto ratio = paired_ratio(seconds[1], seconds[0]);
  const double one_ms = 1e3 * median(seconds[0]), two_ms = 1e3 * median(seconds[1]);
  report.finding(
      fmt::format("{}: {:.2f} ms per step if the host waits for each, {:.2f} ms with two in flight{}",
                  devices, one_ms, two_ms, ratio ? fmt::format(" ({:.3f} x the time)", *ratio) : ""),
      {{"devices", devices}, {"one_ms", one_ms}, {"two_ms", two_ms}, {"two_over_one", or_null(ratio)}});
}

void report_phases(BenchReport& report, const Measured& measured) {
  const auto devices = spec_of(measured.plan.trainer.devices);
  const auto phases = named(measured.phases);
  double total = 0;
  for (const auto& [name, seconds] : phases) total += seconds;
  for (const auto& [name, seconds] : phases) {
    report.row(
        {{"devices", devices}, {"phase", name}, {"ms", 1e3 * seconds}, {"share", 100 * seconds / total}});
  }
  const auto most = std::max_element(phases.begin(), phases.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto of_peak = mfu(measured);
  report.finding(
      fmt::format(
          "{}: the largest part of a step is {} ({:.0f} %){}", devices, most->first,
          100 * most->second / total,
          of_peak
              ? fmt::format("; its arithmetic, counted as direct sums, reaches {:.0f} % of the peak of large "
                            "matrix products",
                            *of_peak)
              : ""),
      {{"devices", devices}, {"phase", most->first}, {"share", most->second / total}});
  report.check("replicas of " + devices, measured.agree,
               measured.agree ? "all have the same weights" : "their weights differ");
}

void report_all_layers(BenchReport& report, const std::vector<Measured>& all) {
  const auto only_cpus = [](const Measured& measured) { return !any_gpu(measured.plan.trainer.devices); };
  if (std::none_of(all.begin(), all.end(), only_cpus)) return;
  report.table("layers", layer_columns());
  for (const auto& measured : all) {
    if (only_cpus(measured)) report_layers(report, measured.plan, median(measured.seconds));
  }
}

void add_step_flags(CLI::App& step, BenchStepOptions& options) {
  add_setting_flags(step, kBench, options.train);
  step.add_option("--iterations", options.iterations,
                  "Steps per repetition (default: as many as take half a second)")
      ->check(positive_int())
      ->default_str("");
  add_bench_flags(step, options.bench,
                  "Replicas that train; repeat the flag to compare lists (default: auto)");
  group_bench_flags(step);
  set_group(step, HelpGroup::kTask, {"--seed"});
  set_group(step, HelpGroup::kMeasuring, {"--iterations"});
}

void run_step(const BenchStepOptions& options) {
  // Plan all lists first, so that errors come before anything is measured.
  std::vector<TrainPlan> plans;
  for (const auto& devices : device_lists(options.bench, {"auto"})) {
    plans.push_back(
        plan_for(options, devices, plans.empty() ? std::nullopt : std::optional(plans.front().as_read)));
  }
  BenchReport report("step", options.bench, shared_fields(kInBench, options.train, plans.front()));
  report.note(
      "MFU: the step's arithmetic as a share of the peak, which is measured in this run: large matrix");
  report.note("products on all of the list's devices at once");
  report.note(
      "layers (on CPUs): each alone, in all replicas at once; of peak: of multiplications and sums in "
      "registers");
  report.note("alone. Arithmetic is counted as direct sums; Winograd's kernels do less and may exceed 100 %");
  if (options.train.trainer.in_flight == 2) report.note("--in-flight 2 is also compared with 1");
  report.run([&] {
    std::vector<Measured> all;
    report.table("step", step_columns(plans.front().data.set.row_noun));
    for (const auto& plan : plans) {
      if (!all.empty() && report.interrupted()) break;
      all.push_back(measure(report, options, plan));
      report.row(step_row(all.back()));
    }
    report.table("phases", phase_columns());
    for (const auto& measured : all) report_phases(report, measured);
    report.stop_if_interrupted("after the steps that are shown");
    report_all_layers(report, all);
    if (options.train.trainer.in_flight != 2) return;
    for (const auto& measured : all) {
      compare_in_flight(report, options, measured.plan);
      report.stop_if_interrupted("after the steps in flight that are shown");
    }
  });
}

}  // namespace

void setup_bench_step(CLI::App& bench) {
  add_benchmark(bench, "step", "A training step: its time, its phases, its share of the peak", add_step_flags,
                run_step);
}

}  // namespace lockstep
