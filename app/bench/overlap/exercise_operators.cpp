// Exercises 1 and 2: independent operators on one device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/app/bench/overlap/exercises.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/app/bench/overlap/queues/independent_operators.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kPays = 1.1;      // least speed-up that counts as a gain
constexpr double kSeconds = 2e-3;  // least time of a repetition of small operators
constexpr double kMostRounds = 100'000;
constexpr OperatorWay kWays[] = {OperatorWay::kOneAfterAnother, OperatorWay::kSideBySide};

IndependentOperators operators_of(const OverlapPlan& plan) {
  const int cores = plan.threads * static_cast<int>(plan.devices.size());
  return {plan.devices.front(), cores, plan.iterations};
}

// Seconds of all operators of one size, by repetition.
struct OperatorTimes {
  int64_t size = 0;
  std::vector<double> one_after_another;
  std::vector<double> side_by_side;

  std::optional<double> speed() const { return paired_ratio(one_after_another, side_by_side); }
};

OperatorTimes measure(OverlapRun& run, IndependentOperators& operators, int64_t size, int64_t& wrong) {
  operators.set_size(size, run.plan.seed);
  int64_t rounds[2] = {1, 1};
  for (const auto way : kWays) {
    wrong += operators.wrong_results(way);  // also the warm-up
    const double once = operators.seconds(way, 3);
    rounds[static_cast<int>(way)] = static_cast<int64_t>(std::clamp(kSeconds / once, 1.0, kMostRounds));
  }
  OperatorTimes times{.size = size, .one_after_another = {}, .side_by_side = {}};
  for (int repetition = 0; run.report.takes_repetition(repetition, run.plan.repeat); ++repetition) {
    times.one_after_another.push_back(operators.seconds(kWays[0], rounds[0]));
    times.side_by_side.push_back(operators.seconds(kWays[1], rounds[1]));
  }
  return times;
}

std::string ways_of(const OverlapPlan& plan, const IndependentOperators& operators) {
  const auto side = static_cast<int64_t>(operators.queues(OperatorWay::kSideBySide));
  if (!plan.devices.front().is_cpu()) return fmt::format("one stream, or {} side by side", side);
  const int cores = plan.threads * static_cast<int>(plan.devices.size());
  return fmt::format("one thread whose operators may use {}, or {} side by side", counted(cores, "core"),
                     counted(side, "thread"));
}

void check_operators(OverlapRun& run, int64_t wrong) {
  run.report.check("matmuls", wrong == 0, counted(wrong, "result") + " unlike torch's");
}

std::vector<Column> operator_columns() {
  return {{.key = "size", .title = "size", .width = 6},
          {.key = "serial_us", .title = "one by one", .unit = "us", .width = 11, .digits = 1},
          {.key = "side_us", .title = "side by side", .unit = "us", .width = 12, .digits = 1},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "speed", .title = "speed", .width = 6, .digits = 2}};
}

Json row_of(const OperatorTimes& times) {
  const auto side = quartiles_of(times.side_by_side);
  return {{"size", times.size},
          {"serial_us", 1e6 * median(times.one_after_another)},
          {"side_us", 1e6 * side.median},
          {"iqr", 100 * side.relative_iqr()},
          {"speed", or_null(times.speed())},
          {"repeats", side.repeats}};
}

int64_t at_once(IndependentOperators& operators, OperatorWay way, Trace* also_into) {
  Trace trace;
  operators.trace_once(way, trace);
  if (also_into) operators.trace_once(way, *also_into);
  return most_at_once(trace.events());
}

void answer_first(OverlapRun& run, const std::vector<OperatorTimes>& all, int64_t serially, int64_t side) {
  std::string answer = serially <= 1
                           ? "answer: no: operators that are issued one after another run one after another"
                           : fmt::format("answer: yes: up to {} ran at once by themselves", serially);
  answer += side > 1 ? fmt::format("; side by side up to {} ran at once", side)
                     : "; side by side no two ran at once either";
  Json values = {{"exercise", 1}, {"at_once", serially}, {"at_once_side_by_side", side}};
  for (const auto& times : all) {
    const auto speed = times.speed();
    if (!speed) continue;
    answer += fmt::format(", {:.2f} x as fast at {}", *speed, times.size);
    values[fmt::format("speed_{}", times.size)] = *speed;
  }
  run.report.finding(answer, values);
}

}  // namespace

void exercise_independent_operators(OverlapRun& run) {
  auto operators = operators_of(run.plan);
  run.report.note(
      fmt::format("question   do the {} independent operators of one `run` overlap?", run.plan.iterations));
  run.report.note("experiment issued to " + ways_of(run.plan, operators) +
                  "; at once: the most that run at one moment in a trace");
  auto with_at_once = operator_columns();
  with_at_once.push_back({.key = "at_once", .title = "at once", .width = 8});
  with_at_once.push_back({.key = "at_once_side", .title = "side by side", .width = 8});
  run.report.table("independent operators", with_at_once);
  std::vector<int64_t> sizes = {run.plan.size};
  if (const auto small = std::max<int64_t>(8, run.plan.size / 16); small < run.plan.size) {
    sizes.insert(sizes.begin(), small);
  }
  std::vector<OperatorTimes> all;
  int64_t wrong = 0, serially = 0, side = 0;
  for (const auto size : sizes) {
    all.push_back(measure(run, operators, size, wrong));
    const auto one = at_once(operators, OperatorWay::kOneAfterAnother, run.trace);
    const auto more = at_once(operators, OperatorWay::kSideBySide, run.trace);
    serially = std::max(serially, one);
    side = std::max(side, more);
    auto row = row_of(all.back());
    row["at_once"] = one;
    row["at_once_side"] = more;
    run.report.row(std::move(row));
    run.report.stop_if_interrupted(fmt::format("after size {}", size));
  }
  check_operators(run, wrong);
  answer_first(run, all, serially, side);
  if (all.back().speed() == std::nullopt) run.report.note(too_few_repeats(all.back().side_by_side.size()));
}

void exercise_small_operators(OverlapRun& run) {
  constexpr int64_t kSmallestSize = 8;
  auto operators = operators_of(run.plan);
  run.report.note(fmt::format("question   does it pay to run {} small operators side by side on one device?",
                              run.plan.iterations));
  run.report.note("experiment issued to " + ways_of(run.plan, operators) + ", with sizes that double");
  run.report.table("small operators", operator_columns());
  std::vector<OperatorTimes> all;
  int64_t wrong = 0;
  for (auto size = std::min(kSmallestSize, run.plan.size); size <= run.plan.size; size *= 2) {
    all.push_back(measure(run, operators, size, wrong));
    run.report.row(row_of(all.back()));
    run.report.stop_if_interrupted(fmt::format("after size {}", size));
  }
  if (run.trace) {
    for (const auto way : kWays) operators.trace_once(way, *run.trace);
  }
  check_operators(run, wrong);
  if (!all.front().speed()) return run.report.note(too_few_repeats(all.front().side_by_side.size()));
  std::vector<int64_t> paying;
  for (const auto& times : all) {
    if (*times.speed() >= kPays) paying.push_back(times.size);
  }
  const auto best = std::max_element(all.begin(), all.end(),
                                     [](const auto& a, const auto& b) { return *a.speed() < *b.speed(); });
  const auto most = fmt::format("most at {}, where it is {:.2f} x as fast", best->size, *best->speed());
  std::string answer = "answer: at none of these sizes does side by side pay";
  if (paying.size() == all.size()) {
    answer = fmt::format("answer: side by side pays at every size, {}", most);
  } else if (!paying.empty()) {
    answer = fmt::format("answer: side by side pays at {} of {} sizes ({}), {}", paying.size(), all.size(),
                         fmt::join(paying, ", "), most);
  }
  run.report.finding(answer,
                     {{"exercise", 2}, {"pays_at", paying}, {"best", best->size}, {"speed", *best->speed()}});
}

}  // namespace lockstep
