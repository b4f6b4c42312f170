#include <lockstep/app/bench/scaling/prediction.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <lockstep/app/bench/scaling/bucket_times.h>
#include <lockstep/app/bench/scaling/measure_link.h>
#include <lockstep/app/bench/scaling/schemes.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

// The predicted steps: on n units, each a replica, or a process with the same number of replicas.
struct PredictedSteps {
  const std::vector<ScalingCase>& cases;  // measured; the first one is the reference, one replica
  int most = 1;                           // units: 1, 2, 4, ... and `most` itself
  bool of_processes = false;
  int replicas_each = 1;  // in each unit
  // Where there is one unit, as measured.
  std::function<Prediction(Scaling mode, int n, Shard shard)> predict;
  std::function<bool(const ScalingCase& measured, int n)> covers;  // true if the model holds for it
};

std::vector<Column> prediction_columns(bool of_processes, const std::string& row_noun) {
  std::vector<Column> columns = {
      {.key = "mode", .title = "mode", .width = 6, .digits = kText},
      {.key = "replicas", .title = "replicas", .width = 8},
      {.key = "batch_size", .title = "batch", .unit = row_noun + "s", .width = 8},
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

std::set<Scaling> modes_of(const std::vector<ScalingCase>& cases) {
  std::set<Scaling> modes;
  for (const auto& each : cases) modes.insert(each.scaling);
  return modes;
}

// Prints a row for each mode that was measured and each number of units, with the measurements that exist and
// their difference.
void report_predicted_steps(BenchReport& report, const PredictedSteps& steps) {
  const auto& plan = steps.cases.front().plan;
  report.table("prediction", prediction_columns(steps.of_processes, plan.data.set.row_noun));
  double worst = -1;  // relative error
  for (const auto mode : modes_of(steps.cases)) {
    for (const int n : worlds_up_to(steps.most)) {
      const auto predicted = steps.predict(mode, n, plan.trainer.shard);
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

void report_predictions(BenchReport& report, const PredictedSteps& steps) {
  report_predicted_steps(report, steps);
  const auto& plan = steps.cases.front().plan;
  if (plan.trainer.shard == Shard::kNone) return;
  report_schemes(report, {.plan = plan,
                          .gradient_bytes = static_cast<double>(plan.gradient_bytes()),
                          .modes = modes_of(steps.cases),
                          .units = worlds_up_to(steps.most),
                          .of_processes = steps.of_processes,
                          .replicas_each = steps.replicas_each,
                          .predict = steps.predict});
}

// The compute model that explains the measured steps of one unit with B, B/2 and B/4 rows.
ComputeModel fit_fractions(const std::vector<ScalingCase>& fractions) {
  std::vector<double> rows, seconds;
  for (const auto& fraction : fractions) {
    rows.push_back(fraction.rows());
    seconds.push_back(median(fraction.seconds));
  }
  return fit_compute(rows, seconds);
}

// The update, which `owners` replicas share out, if there are several of them and the plan has --shard.
UpdateModel update_model(const ComputeModel& compute, const BucketTimes& buckets, double rows, int owners,
                         Shard shard) {
  return {.seconds = buckets.update * compute.seconds(rows),
          .bytes = buckets.bytes,
          .owners = shard == Shard::kNone ? 1 : owners};
}

// Returns true if the model covers this case: devices of one kind, each replica on its own GPU or cores.
bool predictable(const ScalingCase& measured, torch::Device device, int cores) {
  const auto& trainer = measured.plan.trainer;
  const bool alike = std::all_of(trainer.devices.begin(), trainer.devices.end(),
                                 [&](auto other) { return other.type() == device.type(); });
  if (!alike) return false;
  if (device.is_cpu()) return measured.replicas() * replica_threads(trainer) <= cores;
  std::set<int> gpus;
  for (const auto gpu : trainer.devices) gpus.insert(gpu.index());
  return gpus.size() == trainer.devices.size();
}

// The fields of the JSON that both models have.
Json model_fields(const ComputeModel& compute, const Link& link) {
  return {{"fixed_seconds", compute.fixed},
          {"seconds_per_row", compute.per_row},
          {"link", link.name},
          {"alpha_2", link.alpha_2},
          {"alpha_8", link.alpha_8},
          {"beta_2", link.beta_2},
          {"beta_8", link.beta_8},
          {"overlaps", link.overlaps}};
}

void print_model(BenchReport& report, const ComputeModel& compute, int background_load, const Link& link,
                 double bytes) {
  const auto beside = background_load > 0 ? fmt::format(" beside a background load of {}",
                                                        counted(background_load, "replica"))
                                          : "";
  report.note(
      fmt::format("prediction: compute(b) = {:.3f} ms + {:.5f} ms x b, fitted to one replica's steps{}",
                  1e3 * compute.fixed, 1e3 * compute.per_row, beside));
  report.note(
      fmt::format("sum(n) = {:.1f} us + 2 (n-1)/n x {:.3f} MB / {:.2f} GB/s between two replicas (link: {})",
                  1e6 * link.alpha_2, bytes / 1e6, link.beta_2 / 1e9, link.name));
  report.note(link.overlaps
                  ? "exposed = max(sum of the last bucket, sum - 2/3 compute): sums run during backward"
                  : "exposed = sum: the device that computes also sums");
  auto model = model_fields(compute, link);
  model["background_load"] = background_load;
  model["gradient_bytes"] = bytes;
  report.keep("model", std::move(model));
}

void print_process_model(BenchReport& report, const ComputeModel& compute, const BucketTimes& buckets,
                         const Link& link, int processes) {
  report.note(fmt::format(
      "prediction: compute(b) = {:.3f} ms + {:.5f} ms x b, fitted to steps of {} processes, each alone, at "
      "the same time",
      1e3 * compute.fixed, 1e3 * compute.per_row, processes));
  report.note(
      fmt::format("sum(S, n) = {:.1f} us + 2 (n-1)/n x S / {:.2f} GB/s between two processes (link: {})",
                  1e6 * link.alpha_2, link.beta_2 / 1e9, link.name));
  std::vector<std::string> times;
  for (size_t i = 0; i < buckets.bytes.size(); ++i) {
    times.push_back(fmt::format("{:.2f} MB at {:.0f} %", buckets.bytes[i] / 1e6, 100 * buckets.ready[i]));
  }
  report.note(fmt::format("gradients are ready after a part of the step: {}; backward ends at {:.0f} %",
                          fmt::join(times, ", "), 100 * buckets.computed));
  report.note(link.overlaps ? "exposed = what is left of the sums, one after the other, when backward ends"
                            : "exposed = sums: the cores that compute also sum");
  auto model = model_fields(compute, link);
  model["bucket_bytes"] = buckets.bytes;
  model["bucket_ready"] = buckets.ready;
  model["backward_end"] = buckets.computed;
  report.keep("model", std::move(model));
}

}  // namespace

void report_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                       const std::vector<ScalingCase>& measured, const Link& link, int most, int cores) {
  const auto& reference = measured.front();
  const auto device = reference.plan.trainer.devices.front();
  const auto compute = fit_fractions(fractions);
  const auto bytes = static_cast<double>(reference.plan.gradient_bytes());
  print_model(report, compute, fractions.front().background_load, link, bytes);
  const bool shares = reference.plan.trainer.shard != Shard::kNone;
  const auto buckets =
      shares ? measure_bucket_times(reference.plan, static_cast<int64_t>(reference.rows())) : BucketTimes{};
  const auto predict = [&](Scaling mode, int n, Shard shard) {
    if (n == 1) return Prediction{.compute = median(reference.seconds)};  // measured
    const double rows = mode == Scaling::kWeak ? reference.rows() : reference.rows() / n;
    return predict_step(compute, link, rows, bytes, n,
                        update_model(compute, buckets, reference.rows(), n, shard));
  };
  const auto covers = [&](const ScalingCase& each, int n) {
    return n > 1 && each.replicas() == n && predictable(each, device, cores);
  };
  report_predictions(report, {.cases = measured, .most = most, .predict = predict, .covers = covers});
}

void report_process_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                               const std::vector<ScalingCase>& measured, const std::optional<Link>& link,
                               int most) {
  const auto& all = measured.back().plan;
  const auto own = measure_process_link(all);
  const auto replicas = all.local_size();
  const auto rows = static_cast<int64_t>(fractions.front().rows()) / replicas;
  const auto buckets = measure_bucket_times(fractions.front().plan, std::max<int64_t>(1, rows));
  if (!all.world.leads()) return;
  const auto used = link.value_or(own);
  const auto compute = fit_fractions(fractions);
  print_process_model(report, compute, buckets, used, all.world.place.processes);
  const double batch = fractions.front().rows();  // strong: of all replicas; weak: of each
  const auto is_of = [&](const ScalingCase& each, int n) {
    return each.plan.world.place.processes == n && each.plan.trainer.devices == all.trainer.devices;
  };
  const auto predict = [&](Scaling mode, int n, Shard shard) {
    for (const auto& each : measured) {
      const bool same_batch = each.scaling == mode || each.replicas() == 1;
      if (n == 1 && is_of(each, 1) && same_batch) return Prediction{.compute = median(each.seconds)};
    }
    const double share = mode == Scaling::kWeak ? batch * replicas : batch / n;
    const auto update = update_model(compute, buckets, batch, n * replicas, shard);
    return predict_process_step(compute, buckets, used, own.overlaps ? nullptr : &own, share, n, update);
  };
  const auto& lists = all.world.devices;
  const bool alike =
      std::all_of(lists.begin(), lists.end(), [&](const auto& list) { return list == lists[0]; });
  const auto covers = [&](const ScalingCase& each, int n) { return alike && n > 1 && is_of(each, n); };
  report_predictions(report, {.cases = measured,
                              .most = most,
                              .of_processes = true,
                              .replicas_each = replicas,
                              .predict = predict,
                              .covers = covers});
}

}  // namespace lockstep
