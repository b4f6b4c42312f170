// Exercises 1 and 2: independent operators on one device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>

#include <lockstep/app/bench/overlap/experiments.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/app/bench/overlap/queues/independent_operators.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kPays = 1.1;           // least speed-up that counts as a gain
constexpr double kRoundSeconds = 2e-3;  // least time of a repetition of small operators
constexpr double kMostRounds = 100'000;

// The operators of one size in both ways, and their seconds by repetition.
class OperatorExercise {
 public:
  explicit OperatorExercise(OverlapRun& run)
      : run_(run),
        device_(run.plan.list.devices.front()),
        cores_(run.plan.list.threads * run.plan.count()),
        ways_{IndependentOperators(device_, cores_, run.plan.iterations, /*side_by_side=*/false),
              IndependentOperators(device_, cores_, run.plan.iterations, /*side_by_side=*/true)} {}

  struct Times {
    int64_t size = 0;
    Seconds one_after_another, side_by_side;
    std::optional<double> speed() const { return paired_ratio(one_after_another, side_by_side); }
  };

  Times measure(int64_t size) {
    for (auto& way : ways_) way.use({});  // frees those of the size before
    const auto operands = make_operands(device_, run_.plan.iterations, size, run_.plan.seed);
    std::vector<std::function<double()>> cases;
    for (auto& way : ways_) {
      way.use(operands);
      wrong_ += way.wrong_results();  // also the warm-up
      const auto rounds = static_cast<int64_t>(std::clamp(kRoundSeconds / way.seconds(3), 1.0, kMostRounds));
      cases.emplace_back([&way, rounds] { return way.seconds(rounds); });
    }
    const auto seconds = run_.report.in_turns(cases);
    return {.size = size, .one_after_another = seconds[0], .side_by_side = seconds[1]};
  }

  // Returns the most operators at one moment of a trace: one after another, and side by side.
  std::array<int64_t, 2> at_once() {
    std::array<int64_t, 2> most{};
    for (size_t way = 0; way < ways_.size(); ++way) {
      Trace trace;
      ways_[way].trace_once(trace);
      if (run_.trace) ways_[way].trace_once(*run_.trace);
      most[way] = most_at_once(trace.events());
    }
    return most;
  }

  std::string text() const {
    const auto side = static_cast<int64_t>(ways_[1].queues());
    if (!device_.is_cpu()) return fmt::format("one stream, or {} side by side", side);
    return fmt::format("one thread whose operators may use {}, or {} side by side", counted(cores_, "core"),
                       counted(side, "thread"));
  }

  void check() const {
    run_.report.check("matmuls", wrong_ == 0, counted(wrong_, "result") + " unlike torch's");
  }

 private:
  OverlapRun& run_;
  const torch::Device device_;
  const int cores_;
  std::array<IndependentOperators, 2> ways_;
  int64_t wrong_ = 0;  // results
};

using OperatorTimes = OperatorExercise::Times;

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
  OperatorExercise operators(run);
  run.report.note(
      fmt::format("question   do the {} independent operators of one `run` overlap?", run.plan.iterations));
  run.report.note("experiment issued to " + operators.text() +
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
  int64_t serially = 0, side = 0;
  for (const auto size : sizes) {
    all.push_back(operators.measure(size));
    auto row = row_of(all.back());
    const auto [one, more] = operators.at_once();
    serially = std::max(serially, one);
    side = std::max(side, more);
    row["at_once"] = one;
    row["at_once_side"] = more;
    run.report.row(std::move(row));
    run.report.stop_if_interrupted(fmt::format("after size {}", size));
  }
  operators.check();
  answer_first(run, all, serially, side);
  if (all.back().speed() == std::nullopt) run.report.note(too_few_repeats(all.back().side_by_side.size()));
}

void exercise_small_operators(OverlapRun& run) {
  constexpr int64_t kSmallestSize = 8;
  OperatorExercise operators(run);
  run.report.note(fmt::format("question   does it pay to run {} small operators side by side on one device?",
                              run.plan.iterations));
  run.report.note("experiment issued to " + operators.text() + ", with sizes that double");
  run.report.table("small operators", operator_columns());
  std::vector<OperatorTimes> all;
  for (auto size = std::min(kSmallestSize, run.plan.size); size <= run.plan.size; size *= 2) {
    all.push_back(operators.measure(size));
    run.report.row(row_of(all.back()));
    run.report.stop_if_interrupted(fmt::format("after size {}", size));
  }
  if (run.trace) operators.at_once();  // adds to the trace
  operators.check();
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
