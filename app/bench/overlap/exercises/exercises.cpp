#include <lockstep/app/bench/overlap/exercises/exercises.h>

#include <fmt/format.h>

#include <array>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

constexpr std::array<void (*)(OverlapRun&), kExercises> kRuns = {
    exercise_independent_operators, exercise_small_operators, exercise_all_at_once, exercise_trace,
    exercise_dependencies};

// What the traces of exercise 4 show.
struct Seen {
  int64_t beside = 0;           // products beside a copy, in the way that came last
  int64_t beside_serially = 0;  // where one comes after the other: there can be none
  int64_t ahead = 0;            // copies before their product
};

void look_at(OverlapRun& run, const std::vector<OverlapDevice*>& devices, const CopyWay& way, int times,
             Seen& seen) {
  constexpr double kSlack = 50e-6;  // to which two streams' clocks can be compared
  run.report.stop_if_interrupted("before the way " + way.name);
  Trace turn;
  trace_turn(turn, run, devices, way, times);
  if (run.trace && way.order == CopyOrder::kBeside) trace_turn(*run.trace, run, devices, way, times);
  const auto events = turn.events();
  const auto ahead = copies_ahead(events, kSlack);
  seen.beside = computed_beside_a_copy(events);
  seen.ahead += ahead;
  if (way.order == CopyOrder::kAfterAll) seen.beside_serially += seen.beside;
  run.report.row(
      {{"way", way.name}, {"products", run.plan.iterations}, {"beside", seen.beside}, {"ahead", ahead}});
  run.keep_timeline("trace: " + way.name, turn);
}

}  // namespace

void run_exercise(OverlapRun& run) { kRuns.at(static_cast<size_t>(*run.plan.exercise - 1))(run); }

void exercise_all_at_once(OverlapRun& run) {
  run.report.note("question   can devices compute, and their results travel, all at the same time?");
  run.report.note(
      "experiment every device runs its products while its results are copied to the host; then the");
  run.report.note(
      "           two-layer network of the chapter's figure: gradients are summed on the host, layer");
  run.report.note("           by layer, and weights come back (--devices cuda:0,cpu: a processor and a GPU)");
  auto devices = make_overlap_devices(run.plan.devices, run.plan.threads, run.plan.size, run.plan.seed);
  const auto hidden = compare_all_at_once(run, devices);
  run.report.stop_if_interrupted("after all at once");
  run_two_layer_network(run, devices);
  if (!hidden) return;
  run.report.finding(
      fmt::format("answer: {:.0f} % of the shorter part is hidden: {}", 100 * *hidden, reach_of(*hidden)),
      {{"exercise", 3}, {"hidden", *hidden}});
}

void exercise_trace(OverlapRun& run) {
  run.report.note("question   does a profiler show that copies run beside the products?");
  run.report.note(
      "experiment one traced turn of each way to compute and copy on the first device; products during");
  run.report.note("           which a copy was under way are counted (--trace FILE keeps the last way's)");
  auto made =
      make_overlap_devices({run.plan.devices.front()}, run.plan.threads, run.plan.size, run.plan.seed);
  const std::vector<OverlapDevice*> devices = {made.front().get()};
  const auto ways = copy_ways(!devices.front()->device().is_cpu());
  const int times = copies_a_result(*devices.front());
  explain_copies(run, devices, times);
  run.report.table("trace", {{.key = "way", .title = "compute and copy", .width = 27, .digits = kText},
                             {.key = "products", .title = "products", .width = 8},
                             {.key = "beside", .title = "beside a copy", .width = 8},
                             {.key = "ahead", .title = "copies too early", .width = 8}});
  Seen seen;
  for (const auto& way : ways) look_at(run, devices, way, times, seen);
  run.report.check("copies follow products", seen.ahead == 0,
                   fmt::format("{} begun before the product was there", seen.ahead));
  run.report.check("one after the other", seen.beside_serially == 0,
                   counted(seen.beside_serially, "product") + " beside a copy");
  run.report.finding(fmt::format("answer: {}: in the overlapped turn a copy was under way during {} of {}",
                                 seen.beside * 2 > run.plan.iterations ? "yes" : "hardly", seen.beside,
                                 counted(run.plan.iterations, "product")),
                     {{"exercise", 4}, {"beside", seen.beside}, {"products", run.plan.iterations}});
}

}  // namespace lockstep
