#include <lockstep/app/bench/scaling/prediction.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda/info.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

std::vector<Column> columns() {
  return {{.key = "mode", .title = "mode", .width = 6, .digits = kText},
          {.key = "replicas", .title = "replicas", .width = 8},
          {.key = "batch_size", .title = "batch", .unit = "images", .width = 8},
          {.key = "ms", .title = "predicted", .unit = "ms", .width = 9, .digits = 3},
          {.key = "compute_ms", .title = "compute", .unit = "ms", .width = 8, .digits = 3},
          {.key = "exposed_ms", .title = "exposed", .unit = "ms", .width = 8, .digits = 3},
          {.key = "speedup", .title = "speed-up", .width = 8, .digits = 2},
          {.key = "efficiency", .title = "efficiency", .unit = "%", .digits = 1},
          {.key = "measured_ms", .title = "measured", .unit = "ms", .width = 8, .digits = 3},
          {.key = "error", .title = "error", .unit = "%", .width = 7, .digits = 1}};
}

// 1, 2, 4, ... and `most` itself.
std::set<int> worlds_up_to(int most) {
  std::set<int> worlds{most};
  for (int n = 1; n < most; n *= 2) worlds.insert(n);
  return worlds;
}

// Whether the model covers this case: devices of one kind, each replica on its own GPU or cores.
bool predictable(const ScalingCase& measured, torch::Device device, int cores) {
  const auto& trainer = measured.plan.trainer;
  const bool alike = std::all_of(trainer.devices.begin(), trainer.devices.end(),
                                 [&](auto other) { return other.type() == device.type(); });
  if (!alike) return false;
  if (device.is_cpu()) return measured.replicas() * trainer.threads <= cores;
  std::set<int> gpus;
  for (const auto gpu : trainer.devices) gpus.insert(gpu.index());
  return gpus.size() == trainer.devices.size();
}

const ScalingCase* find(const std::vector<ScalingCase>& measured, Scaling scaling, int n,
                        torch::Device device, int cores) {
  for (const auto& each : measured) {
    if (each.replicas() == n && each.scaling == scaling && predictable(each, device, cores)) {
      return &each;
    }
  }
  return nullptr;
}

int64_t bytes_of_gradients(const TrainPlan& plan) {
  const bool in_double = plan.trainer.replica.precision == Precision::kFp64;
  return plan.parameter_count * static_cast<int64_t>(in_double ? sizeof(double) : sizeof(float));
}

ComputeModel fit(const std::vector<ScalingCase>& fractions) {
  std::vector<double> rows, seconds;
  for (const auto& fraction : fractions) {
    rows.push_back(fraction.rows());
    seconds.push_back(median(fraction.seconds));
  }
  return fit_compute(rows, seconds);
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
      fmt::format("sum(n) = {:.1f} us + 2 (n-1)/n x {:.3f} MB / {:.2f} GB/s between two devices (link: {})",
                  1e6 * link.alpha_2, bytes / 1e6, link.beta_2 / 1e9, link.name));
  report.note(link.overlaps
                  ? "exposed = max(sum of the last bucket, sum - 2/3 compute): sums run during backward"
                  : "exposed = sum: the cores that compute also sum");
  report.keep("model", {{"fixed_seconds", compute.fixed},
                        {"seconds_per_row", compute.per_row},
                        {"background_load", background_load},
                        {"link", link.name},
                        {"alpha_2", link.alpha_2},
                        {"alpha_8", link.alpha_8},
                        {"beta_2", link.beta_2},
                        {"beta_8", link.beta_8},
                        {"overlaps", link.overlaps},
                        {"gradient_bytes", bytes}});
}

// Speed-up and efficiency against the reference: it has the whole batch (strong) or one of n batches (weak).
Json row_of(Scaling mode, int n, const Prediction& predicted, const ScalingCase& reference) {
  const bool weak = mode == Scaling::kWeak;
  Json row{{"mode", name_of(kScalingNames, mode)},
           {"replicas", n},
           {"batch_size", static_cast<int64_t>(reference.rows()) * (weak ? n : 1)},
           {"ms", 1e3 * predicted.step()},
           {"compute_ms", 1e3 * predicted.compute},
           {"exposed_ms", 1e3 * predicted.exposed}};
  if (reference.seconds.size() < kRatioRepeats) return row;
  const double speedup = median(reference.seconds) / predicted.step() * (weak ? n : 1);
  row["speedup"] = speedup;
  row["efficiency"] = 100 * speedup / n;
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

Link measure_link(const TrainPlan& plan) {
  constexpr int kIterations = 20;
  constexpr int kRepeats = 5;
  const auto device = plan.trainer.devices.front();
  const auto gradient_bytes = bytes_of_gradients(plan);
  const bool two_gpus = device.is_cuda() && cuda_devices().size() > 1;
  const auto other = two_gpus ? torch::Device(torch::kCUDA, device.index() == 0 ? 1 : 0) : device;
  const std::vector<torch::Device> devices{device, other};
  AllreduceRanks ranks(devices, plan.trainer.threads, {choose_allreduce(plan.trainer.allreduce, devices)});
  const auto seconds_of = [&](int64_t bytes) {
    ranks.set_count(bytes / static_cast<int64_t>(sizeof(float)));
    std::vector<double> seconds;
    for (int i = 0; i < kRepeats; ++i) seconds.push_back(ranks.seconds(0, kIterations));
    return median(seconds);
  };
  const double small = seconds_of(sizeof(float));
  return measured_link(small, seconds_of(gradient_bytes), static_cast<double>(gradient_bytes), 2, two_gpus);
}

void report_prediction(BenchReport& report, const std::vector<ScalingCase>& fractions,
                       const std::vector<ScalingCase>& measured, const Link& link, int most, int cores) {
  const auto& reference = measured.front();
  const auto device = reference.plan.trainer.devices.front();
  const auto compute = fit(fractions);
  const auto bytes = static_cast<double>(bytes_of_gradients(reference.plan));
  print_model(report, compute, fractions.front().background_load, link, bytes);
  report.table("prediction", columns());
  double worst = -1;  // relative error
  std::set<Scaling> modes;
  for (const auto& each : measured) modes.insert(each.scaling);
  for (const auto mode : modes) {
    for (const int n : worlds_up_to(most)) {
      const double rows = mode == Scaling::kWeak ? reference.rows() : reference.rows() / n;
      const auto predicted = n == 1 ? Prediction{.compute = median(reference.seconds)}  // measured
                                    : predict_step(compute, link, rows, bytes, n);
      auto row = row_of(mode, n, predicted, reference);
      if (const auto* real = n > 1 ? find(measured, mode, n, device, cores) : nullptr) {
        worst = std::max(worst, add_error(row, predicted, real->seconds));
      }
      report.row(std::move(row));
    }
  }
  if (worst < 0) return;
  report.finding(fmt::format("measured steps differ from the prediction by at most {:.1f} %", 100 * worst),
                 {{"worst_error", worst}});
}

}  // namespace lockstep
