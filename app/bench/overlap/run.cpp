#include <lockstep/app/bench/overlap/run.h>

#include <fmt/format.h>

#include <lockstep/app/bench/overlap/device.h>
#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {

void OverlapRun::keep_timeline(const std::string& experiment, const Trace& turn) {
  for (auto& row : lockstep::timeline(experiment, turn.events(), process_names(plan))) {
    timeline.push_back(std::move(row));
  }
  report.keep("timeline", timeline);
}

std::vector<std::string> process_names(const OverlapPlan& plan) {
  auto names = device_names(plan.devices);
  names.push_back("host");
  return names;
}

void add_times(Json& row, const std::vector<double>& seconds) {
  const auto spread = quartiles_of(seconds);
  row["seconds"] = spread.median;
  row["low_seconds"] = spread.low;
  row["high_seconds"] = spread.high;
  row["spread"] = 100 * spread.relative_iqr();
  row["turns"] = spread.repeats;
}

double product_flops(int64_t size, int64_t products) {
  const auto side = static_cast<double>(size);
  return 2 * side * side * side * static_cast<double>(products);
}

std::string too_few_turns(int repeat) {
  return fmt::format("no ratio from {}: at least {} are needed (--repeat)", counted(repeat, "turn"),
                     kRatioRepeats);
}

}  // namespace lockstep
