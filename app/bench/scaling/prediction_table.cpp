#include <lockstep/app/bench/scaling/prediction_table.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>

#include <lockstep/app/bench/scaling/worlds_up_to.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

std::vector<Column> prediction_columns(bool of_processes) {
  std::vector<Column> columns = {
      {.key = "mode", .title = "mode", .width = 6, .digits = kText},
      {.key = "replicas", .title = "replicas", .width = 8},
      {.key = "batch_size", .title = "batch", .unit = "images", .width = 8},
      {.key = "ms", .title = "predicted", .unit = "ms", .width = 9, .digits = 3},
      {.key = "compute_ms", .title = "compute", .unit = "ms", .width = 8, .digits = 3},
      {.key = "exposed_ms", .title = "exposed", .unit = "ms", .width = 8, .digits = 3},
      {.key = "speedup", .title = "speed-up", .width = 8, .digits = 2},
      {.key = "efficiency", .title = "efficiency", .unit = "%", .digits = 1},
      {.key = "measured_ms", .title = "measured", .unit = "ms", .width = 8, .digits = 3},
      {.key = "error", .title = "error", .unit = "%", .width = 7, .digits = 1}};
  if (of_processes)
    columns.insert(columns.begin() + 1, {.key = "processes", .title = "processes", .width = 9});
  return columns;
}

// Speed-up and efficiency against the reference: it has the whole batch (strong) or one of n batches (weak).
Json predicted_row(const PredictedSteps& steps, Scaling mode, int n, const Prediction& predicted) {
  const auto& reference = steps.cases.front();
  const int replicas = n * steps.replicas_each;
  const int times = mode == Scaling::kWeak ? replicas : 1;
  Json row{{"mode", name_of(kScalingNames, mode)},
           {"replicas", replicas},
           {"processes", steps.of_processes ? n : 1},
           {"batch_size", static_cast<int64_t>(reference.rows()) * times},
           {"ms", 1e3 * predicted.step()},
           {"compute_ms", 1e3 * predicted.compute},
           {"exposed_ms", 1e3 * predicted.exposed}};
  if (reference.seconds.size() < kRatioRepeats) return row;
  const double speedup = median(reference.seconds) / predicted.step() * times;
  row["speedup"] = speedup;
  row["efficiency"] = 100 * speedup / replicas;
  return row;
}

// Adds the measurement to the row. Returns the relative error of the prediction, or -1 with too few
// repetitions.
double add_error(Json& row, const Prediction& predicted, const std::vector<double>& seconds) {
  row["measured_ms"] = 1e3 * median(seconds);
  if (seconds.size() < kRatioRepeats) return -1;
  const double error = predicted.step() / median(seconds) - 1;
  row["error"] = 100 * error;
  return std::abs(error);
}

}  // namespace

void report_predicted_steps(BenchReport& report, const PredictedSteps& steps) {
  report.table("prediction", prediction_columns(steps.of_processes));
  double worst = -1;  // relative error
  std::set<Scaling> modes;
  for (const auto& each : steps.cases) modes.insert(each.scaling);
  for (const auto mode : modes) {
    for (const int n : worlds_up_to(steps.most)) {
      const auto predicted = steps.predict(mode, n);
      auto row = predicted_row(steps, mode, n, predicted);
      const auto real = std::find_if(steps.cases.begin(), steps.cases.end(), [&](const auto& each) {
        return each.scaling == mode && steps.covers(each, n);
      });
      if (real != steps.cases.end()) worst = std::max(worst, add_error(row, predicted, real->seconds));
      report.row(std::move(row));
    }
  }
  if (worst < 0) return;
  report.finding(fmt::format("measured steps differ from the prediction by at most {:.1f} %", 100 * worst),
                 {{"worst_error", worst}});
}

ComputeModel fit_fractions(const std::vector<ScalingCase>& fractions) {
  std::vector<double> rows, seconds;
  for (const auto& fraction : fractions) {
    rows.push_back(fraction.rows());
    seconds.push_back(median(fraction.seconds));
  }
  return fit_compute(rows, seconds);
}

int64_t bytes_of_gradients(const TrainPlan& plan) {
  const bool in_double = plan.trainer.replica.precision == Precision::kFp64;
  return plan.parameter_count * static_cast<int64_t>(in_double ? sizeof(double) : sizeof(float));
}

}  // namespace lockstep
