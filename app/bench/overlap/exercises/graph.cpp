// Exercise 5 of overlap_exercises.h: dependencies.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include <lockstep/app/bench/overlap/dependent_matmuls.h>
#include <lockstep/app/bench/overlap/exercises/exercises.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kRounding = 1e-4;  // between kinds of devices: of the largest element

std::unique_ptr<WorkQueue> device_queue(const OverlapPlan& plan, int rank) {
  const int count = static_cast<int>(plan.devices.size());
  return make_work_queue({.device = plan.devices[static_cast<size_t>(rank)],
                          .threads = plan.threads,
                          .cores = cores_for_worker(allowed_cores(), rank, count, plan.threads),
                          .rank = rank});
}

struct GraphTimes {
  std::vector<double> alone;     // one a turn
  std::vector<double> dealt;     // to two devices
  std::vector<double> critical;  // its slowest chain
};

GraphTimes time_graphs(OverlapRun& run, DependentProducts& alone, DependentProducts& dealt) {
  GraphTimes times;
  for (int turn = 0; run.report.takes_turn(turn, run.plan.repeat); ++turn) {
    times.alone.push_back(alone.graph().run());
    times.dealt.push_back(dealt.graph().run());
    times.critical.push_back(dealt.graph().critical_path(dealt.graph().run_serially()));
  }
  return times;
}

// Also the warm-up of both. x and y are the same, so the results are, too.
void check_graphs(OverlapRun& run, DependentProducts& alone, DependentProducts& dealt,
                  const std::string& when) {
  alone.graph().run();
  dealt.graph().run();
  const auto serial = alone.result(), result = dealt.result();
  const auto unequal = (serial != result).sum().item<int64_t>();
  const double apart = ((result - serial).abs().max() / serial.abs().max()).item<double>();
  const bool alike = run.plan.devices[0].type() == run.plan.devices[1].type();  // else they round differently
  const auto detail =
      alike ? fmt::format("{} of {} elements differ from the serial result", unequal, serial.numel())
            : fmt::format("{:.1e} of the largest element from the serial result, rounding is at most {:.0e}",
                          apart, kRounding);
  run.report.check("result, " + when, alike ? unequal == 0 : apart <= kRounding, detail);
}

void print_graph(OverlapRun& run, const GraphTimes& times) {
  run.report.table("dependencies",
                   {{.key = "what", .title = "f = a c + b c", .width = 24, .digits = kText},
                    {.key = "seconds", .title = "time", .unit = "s", .digits = 4},
                    {.key = "spread", .title = "spread", .unit = "%", .width = 6, .digits = 1},
                    {.key = "speed", .title = "speed", .width = 6, .digits = 2},
                    {.key = "turns", .title = "turns", .width = 5}});
  const auto add = [&](const char* what, const std::vector<double>& seconds) {
    Json row = {{"what", what}};
    add_times(row, seconds);
    row["speed"] = or_null(paired_ratio(times.alone, seconds));
    run.report.row(std::move(row));
  };
  add("one device, in order", times.alone);
  add("two, by dependencies", times.dealt);
  add("the slowest chain alone", times.critical);
}

std::string verdict(double speed) {
  if (speed >= 1.1) return "faster";
  return speed <= .9 ? "slower" : "not faster";
}

}  // namespace

void exercise_dependencies(OverlapRun& run) {
  run.report.note(
      "question   do tasks that depend on each other come out right, and sooner, on two devices?");
  run.report.note(
      "experiment a = x x, b = y y, c = a + b, d = a c, e = b c, f = d + e: in order on the first device;");
  run.report.note(
      "           then b and e on the second, each task as soon as its inputs are there (b, c, e travel)");
  run.report.note(
      fmt::format("run        {} of matrices of {} x {}, each behind the one before",
                  run.plan.iterations == 1 ? "one pass" : fmt::format("{} passes", run.plan.iterations),
                  run.plan.size, run.plan.size));
  const auto first = device_queue(run.plan, 0), second = device_queue(run.plan, 1);
  DependentProducts alone(*first, *first, run.plan.size, run.plan.iterations, run.plan.seed);
  DependentProducts dealt(*first, *second, run.plan.size, run.plan.iterations, run.plan.seed);
  check_graphs(run, alone, dealt, "before");
  const auto times = time_graphs(run, alone, dealt);
  print_graph(run, times);
  dealt.spoil();
  for (auto* queue : {first.get(), second.get()}) queue->trace_to(run.trace);
  check_graphs(run, alone, dealt, "after");
  for (auto* queue : {first.get(), second.get()}) queue->trace_to(nullptr);
  const auto speed = paired_ratio(times.alone, times.dealt),
             bound = paired_ratio(times.alone, times.critical);
  if (!speed) return run.report.note(too_few_turns(run.plan.repeat));
  run.report.finding(
      fmt::format("answer: on two devices it is {} ({:.2f} x as fast); its slowest chain of tasks "
                  "allows {:.2f} x",
                  verdict(*speed), *speed, *bound),
      {{"exercise", 5}, {"speed", *speed}, {"bound", *bound}});
}

}  // namespace lockstep
