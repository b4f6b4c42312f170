#include <lockstep/app/bench/scaling/prediction.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/app/bench/scaling/bucket_times.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

// The predicted steps: on n units, each a replica, or a process with the same number of replicas.
struct PredictedSteps {
  const std::vector<ScalingCase>& cases;  // measured; the first one is the reference, one replica
  int most = 1;                           // units: 1, 2, 4, ... and `most` itself
  bool of_processes = false;
  int replicas_each = 1;  // in each unit
  std::function<Prediction(Scaling mode, int n)> predict;
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

// Prints a row for each mode that was measured and each number of units, with the measurements that exist and
// their difference.
void report_predicted_steps(BenchReport& report, const PredictedSteps& steps) {
  report.table("prediction",
               prediction_columns(steps.of_processes, steps.cases.front().plan.data.set.row_noun));
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

// The compute model that explains the measured steps of one unit with B, B/2 and B/4 rows.
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

// Measures a tiny sum and one of all gradients, between n replicas or processes.
Link link_between(AllreduceRanks& ranks, int64_t gradient_bytes, int n, bool overlaps) {
  constexpr double kMostIterations = 20;
  constexpr double kRepetition = .2;  // of a repetition, about
  constexpr int kRepeats = 5;
  const auto seconds_of = [&](int64_t bytes) {
    ranks.set_count(bytes / static_cast<int64_t>(sizeof(float)));
    const auto iterations =
        static_cast<int>(std::clamp(kRepetition / ranks.seconds(0, 1), 1., kMostIterations));
    std::vector<double> seconds;
    seconds.reserve(kRepeats);
    for (int i = 0; i < kRepeats; ++i) seconds.push_back(ranks.seconds(0, iterations));
    return median(seconds);
  };
  const double small = seconds_of(sizeof(float));
  return measured_link(small, seconds_of(gradient_bytes), static_cast<double>(gradient_bytes), n, overlaps);
}

// Measures sums of the plan's gradients between all processes of its world. Each process calls it. If all are
// on one machine and compute on CPUs, sums do not overlap with computing.
Link measure_process_link(const TrainPlan& plan) {
  const auto& place = plan.world.place;
  AllreduceRanks ranks(plan.trainer.devices, replica_threads(plan.trainer), {plan.trainer.allreduce},
                       plan.world.process_group);
  const bool cores_sum = place.processes_on_host == place.processes && plan.trainer.devices.front().is_cpu();
  auto link = link_between(ranks, bytes_of_gradients(plan), place.processes, !cores_sum);
  leave_together(plan.world);  // before the first process closes its connections
  link.name = fmt::format("measured between {} processes", place.processes);
  return link;
}

}  // namespace

Link measure_link(const TrainPlan& plan) {
  const auto device = plan.trainer.devices.front();
  const bool two_gpus = device.is_cuda() && cuda_devices().size() > 1;
  const auto other = two_gpus ? torch::Device(torch::kCUDA, device.index() == 0 ? 1 : 0) : device;
  const std::vector<torch::Device> devices{device, other};
  AllreduceRanks ranks(devices, replica_threads(plan.trainer),
                       {choose_allreduce(plan.trainer.allreduce, devices)});
  return link_between(ranks, bytes_of_gradients(plan), 2, two_gpus);
}

void report_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                       const std::vector<ScalingCase>& measured, const Link& link, int most, int cores) {
  const auto& reference = measured.front();
  const auto device = reference.plan.trainer.devices.front();
  const auto compute = fit_fractions(fractions);
  const auto bytes = static_cast<double>(bytes_of_gradients(reference.plan));
  print_model(report, compute, fractions.front().background_load, link, bytes);
  const auto predict = [&](Scaling mode, int n) {
    if (n == 1) return Prediction{.compute = median(reference.seconds)};  // measured
    const double rows = mode == Scaling::kWeak ? reference.rows() : reference.rows() / n;
    return predict_step(compute, link, rows, bytes, n);
  };
  const auto covers = [&](const ScalingCase& each, int n) {
    return n > 1 && each.replicas() == n && predictable(each, device, cores);
  };
  report_predicted_steps(report, {.cases = measured, .most = most, .predict = predict, .covers = covers});
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
  const auto predict = [&](Scaling mode, int n) {
    for (const auto& each : measured) {
      const bool same_batch = each.scaling == mode || each.replicas() == 1;
      if (n == 1 && is_of(each, 1) && same_batch) return Prediction{.compute = median(each.seconds)};
    }
    const double share = mode == Scaling::kWeak ? batch * replicas : batch / n;
    return predict_process_step(compute, buckets, used, own.overlaps ? nullptr : &own, share, n);
  };
  const auto& lists = all.world.devices;
  const bool alike =
      std::all_of(lists.begin(), lists.end(), [&](const auto& list) { return list == lists[0]; });
  const auto covers = [&](const ScalingCase& each, int n) { return alike && n > 1 && is_of(each, n); };
  report_predicted_steps(report, {.cases = measured,
                                  .most = most,
                                  .of_processes = true,
                                  .replicas_each = replicas,
                                  .predict = predict,
                                  .covers = covers});
}

}  // namespace lockstep
