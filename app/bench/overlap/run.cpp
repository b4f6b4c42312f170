#include <lockstep/app/bench/overlap/run.h>

#include <fmt/format.h>

#include <lockstep/app/bench/overlap/numbers.h>
#include <lockstep/app/bench/overlap/queues/device.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {

void OverlapRun::keep_timeline(const std::string& experiment, const Trace& traced) {
  for (auto& row : lockstep::timeline(experiment, traced.events(), process_names(plan))) {
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
  const auto time = quartiles_of(seconds);
  row["seconds"] = time.median;
  row["low_seconds"] = time.low;
  row["high_seconds"] = time.high;
  row["iqr"] = 100 * time.relative_iqr();
  row["repeats"] = time.repeats;
}

double matmul_flops(int64_t size, int64_t matmuls) {
  const auto side = static_cast<double>(size);
  return 2 * side * side * side * static_cast<double>(matmuls);
}

std::string too_few_repeats(size_t repeats) {
  return fmt::format("no ratio from {}: at least {} are needed (--repeat)",
                     counted(static_cast<int64_t>(repeats), "repetition"), kRatioRepeats);
}

}  // namespace lockstep
