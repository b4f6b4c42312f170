// Exercise 5: tasks that depend on each other.
#include <fmt/format.h>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/queues/dependent_matmuls.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

// Between different kinds of devices, relative to the largest element.
constexpr double kGraphRounding = 1e-4;

WorkQueueOptions queue_options(const OverlapPlan& plan, int rank) {
  const int threads = plan.list.threads;
  return {.device = plan.list.devices[static_cast<size_t>(rank)],
          .threads = threads,
          .cores = cores_for_worker(allowed_cores(), rank, plan.count(), threads),
          .rank = rank};
}

// By repetition.
struct GraphTimes {
  Seconds alone, divided;  // on one device and on two
  Seconds critical;        // the slowest chain of tasks
};

GraphTimes time_graphs(OverlapRun& run, DependentMatmuls& alone, DependentMatmuls& divided) {
  const auto seconds =
      run.report.in_turns({[&] { return alone.graph().run(); }, [&] { return divided.graph().run(); },
                           [&] { return divided.graph().critical_path(divided.graph().run_serially()); }});
  return {.alone = seconds[0], .divided = seconds[1], .critical = seconds[2]};
}

// Also the warm-up. x and y are the same in both graphs, so the results must agree.
void check_graphs(OverlapRun& run, DependentMatmuls& alone, DependentMatmuls& divided,
                  const std::string& when, Trace* trace = nullptr) {
  alone.graph().run(trace);
  divided.graph().run(trace);
  const auto serial = alone.result(), result = divided.result();
  const auto unequal = (serial != result).sum().item<int64_t>();
  const double apart = relative_error(result, serial);
  const auto& devices = run.plan.list.devices;
  const bool alike = devices[0].type() == devices[1].type();  // otherwise they round differently
  const auto detail =
      alike
          ? fmt::format("{} of {} elements differ from the serial result", unequal, serial.numel())
          : fmt::format(
                "differs from the serial result by {:.1e} of the largest element, rounding is at most {:.0e}",
                apart, kGraphRounding);
  run.report.check("result, " + when, alike ? unequal == 0 : apart <= kGraphRounding, detail);
}

void print_graph(OverlapRun& run, const GraphTimes& times) {
  run.report.table(
      "dependencies",
      time_columns("f = a c + b c", 24, {{.key = "speed", .title = "speed", .width = 6, .digits = 2}}));
  const auto add = [&](const char* what, const Seconds& seconds) {
    auto row = times_row({{"what", what}}, seconds);
    row["speed"] = or_null(paired_ratio(times.alone, seconds));
    run.report.row(std::move(row));
  };
  add("one device, in order", times.alone);
  add("two, by dependencies", times.divided);
  add("the slowest chain alone", times.critical);
}

std::string verdict(double speed) {
  if (speed >= 1.1) return "faster";
  return speed <= .9 ? "slower" : "not faster";
}

}  // namespace

void exercise_dependencies(OverlapRun& run) {
  run.report.note("question   are tasks that depend on each other right, and faster, on two devices?");
  run.report.note(
      "experiment a = x x, b = y y, c = a + b, d = a c, e = b c, f = d + e: in order on the first device;");
  run.report.note(
      "           then b and e on the second, each task as soon as its inputs are there (b, c, e are "
      "copied)");
  run.report.note(
      fmt::format("run        {} of matrices of {} x {}, each after the one before",
                  run.plan.iterations == 1 ? "one pass" : fmt::format("{} passes", run.plan.iterations),
                  run.plan.size, run.plan.size));
  WorkQueue first(queue_options(run.plan, 0)), second(queue_options(run.plan, 1));
  DependentMatmuls alone(first, first, run.plan.size, run.plan.iterations, run.plan.seed);
  DependentMatmuls divided(first, second, run.plan.size, run.plan.iterations, run.plan.seed);
  check_graphs(run, alone, divided, "before");
  const auto times = time_graphs(run, alone, divided);
  print_graph(run, times);
  divided.fill_with_nan();
  check_graphs(run, alone, divided, "after", run.trace);
  const auto speed = paired_ratio(times.alone, times.divided),
             bound = paired_ratio(times.alone, times.critical);
  if (!speed) return run.report.note(too_few_repeats(times.alone.size()));
  run.report.finding(
      fmt::format("answer: two devices are {} ({:.2f} x as fast); the slowest chain of tasks allows "
                  "{:.2f} x",
                  verdict(*speed), *speed, *bound),
      {{"exercise", 5}, {"speed", *speed}, {"bound", *bound}});
}

}  // namespace lockstep
