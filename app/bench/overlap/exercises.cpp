#include <lockstep/app/bench/overlap/experiments.h>

#include <fmt/format.h>

#include <array>

#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr std::array<void (*)(OverlapRun&), kExercises> kExerciseRuns = {
    exercise_independent_operators, exercise_small_operators, exercise_all_at_once, exercise_trace,
    exercise_dependencies};

// The counts that the traces of exercise 4 show.
struct Seen {
  int64_t beside = 0;           // matmuls during a copy, in the last way
  int64_t beside_serially = 0;  // the same in the serial ways, where there can be none
  int64_t ahead = 0;            // copies that began before their matmul had ended
};

void trace_way(OverlapRun& run, const OverlapDevices& devices, const CopyWay& way, int times, Seen& seen) {
  constexpr double kSlack = 50e-6;  // accuracy of comparing the clocks of two streams
  run.report.stop_if_interrupted("before tracing: " + way.name);
  Trace trace;
  compute_and_copy(devices, way, run.plan.iterations, times, &trace);
  if (run.trace && way.order == CopyOrder::kBeside)
    compute_and_copy(devices, way, run.plan.iterations, times, run.trace);
  const auto events = trace.events();
  const auto ahead = copies_ahead(events, kSlack);
  seen.beside = computed_beside_a_copy(events);
  seen.ahead += ahead;
  if (way.order == CopyOrder::kAfterAll) seen.beside_serially += seen.beside;
  run.report.row(
      {{"way", way.name}, {"matmuls", run.plan.iterations}, {"beside", seen.beside}, {"ahead", ahead}});
  run.keep_timeline("trace: " + way.name, trace);
}

}  // namespace

void run_exercise(OverlapRun& run) { kExerciseRuns.at(static_cast<size_t>(*run.plan.exercise - 1))(run); }

void exercise_all_at_once(OverlapRun& run) {
  run.report.note("question   can devices compute and copy their results at the same time?");
  run.report.note(
      "experiment every device runs its matmuls while its results are copied to the host; then the");
  run.report.note(
      "           two-layer network of the chapter's figure: gradients are summed on the host, layer");
  run.report.note("           by layer, and weights come back (--devices cuda:0,cpu: a CPU and a GPU)");
  auto devices = make_overlap_devices(run.plan.list, run.plan.size, run.plan.seed);
  const auto hidden = compare_all_at_once(run, devices);
  run.report.stop_if_interrupted("after all at once");
  run_two_layer_network(run, devices);
  if (!hidden) return;
  run.report.finding(
      fmt::format("answer: {:.0f} % of the shorter part is hidden: {}", 100 * *hidden, reach_of(*hidden)),
      {{"exercise", 3}, {"hidden", *hidden}});
}

void exercise_trace(OverlapRun& run) {
  run.report.note("question   does a profiler show that copies run during matmuls?");
  run.report.note(
      "experiment each way to compute and copy is traced once on the first device; matmuls during");
  run.report.note("           which a copy was running are counted (--trace FILE keeps the last way)");
  const OverlapList first{.devices = {run.plan.list.devices.front()}, .threads = run.plan.list.threads};
  const auto devices = make_overlap_devices(first, run.plan.size, run.plan.seed);
  const auto ways = copy_ways(!devices.front()->device().is_cpu());
  const int times = copies_per_result(devices.front());
  explain_copies(run, devices, times);
  run.report.table("trace", {{.key = "way", .title = "compute and copy", .width = 27, .digits = kText},
                             {.key = "matmuls", .title = "matmuls", .width = 8},
                             {.key = "beside", .title = "during a copy", .width = 8},
                             {.key = "ahead", .title = "copies too early", .width = 8}});
  Seen seen;
  for (const auto& way : ways) trace_way(run, devices, way, times, seen);
  run.report.check("copies follow matmuls", seen.ahead == 0,
                   fmt::format("{} begun before the result was there", seen.ahead));
  run.report.check("one after the other", seen.beside_serially == 0,
                   counted(seen.beside_serially, "matmul") + " during a copy");
  run.report.finding(fmt::format("answer: {}: in the overlapped way a copy was running during {} of {}",
                                 seen.beside * 2 > run.plan.iterations ? "yes" : "hardly", seen.beside,
                                 counted(run.plan.iterations, "matmul")),
                     {{"exercise", 4}, {"beside", seen.beside}, {"matmuls", run.plan.iterations}});
}

}  // namespace lockstep
