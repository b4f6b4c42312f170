#include <lockstep/app/bench/scaling/prediction.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include <lockstep/app/bench/allreduce/ranks.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/cuda_info.h>
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

// Replicas of one kind, each on a GPU or on cores of its own.
bool predictable(const Contender& contender, torch::Device device, int cores) {
  const auto& trainer = contender.plan.trainer;
  const bool alike = std::all_of(trainer.devices.begin(), trainer.devices.end(),
                                 [&](auto other) { return other.type() == device.type(); });
  if (!alike) return false;
  if (device.is_cpu()) return contender.replicas() * trainer.threads <= cores;
  std::set<int> gpus;
  for (const auto each : trainer.devices) gpus.insert(each.index());
  return gpus.size() == trainer.devices.size();
}

const Contender* find(const std::vector<Contender>& measured, Scaling scaling, int n, torch::Device device,
                      int cores) {
  for (const auto& contender : measured) {
    if (contender.replicas() == n && contender.scaling == scaling && predictable(contender, device, cores)) {
      return &contender;
    }
  }
  return nullptr;
}

int64_t bytes_of_gradients(const TrainPlan& plan) {
  const bool in_double = plan.trainer.replica.precision == Precision::kFp64;
  return plan.parameter_count * static_cast<int64_t>(in_double ? sizeof(double) : sizeof(float));
}

ComputeModel fit(const std::vector<Contender>& shards) {
  std::vector<double> rows, seconds;
  for (const auto& shard : shards) {
    rows.push_back(shard.rows());
    seconds.push_back(median(shard.seconds));
  }
  return fit_compute(rows, seconds);
}

void print_model(BenchReport& report, const ComputeModel& compute, int neighbours, const Link& link,
                 double bytes) {
  const auto beside =
      neighbours > 0 ? fmt::format(" while {} took the same", counted(neighbours, "neighbour")) : "";
  report.note(
      fmt::format("prediction: compute(b) = {:.3f} ms + {:.5f} ms x b, fitted to one replica's steps{}",
                  1e3 * compute.fixed, 1e3 * compute.per_row, beside));
  report.note(
      fmt::format("sum(n) = {:.1f} us + 2 (n-1)/n x {:.3f} MB / {:.2f} GB/s between two devices (link: {})",
                  1e6 * link.alpha_2, bytes / 1e6, link.beta_2 / 1e9, link.name));
  report.note(link.overlaps
                  ? "exposed = max(sum of the last bucket, sum - 2/3 compute): sums run beside backward"
                  : "exposed = sum: the cores that compute also sum");
  report.keep("model", {{"fixed_seconds", compute.fixed},
                        {"seconds_per_row", compute.per_row},
                        {"neighbours", neighbours},
                        {"link", link.name},
                        {"alpha_2", link.alpha_2},
                        {"alpha_8", link.alpha_8},
                        {"beta_2", link.beta_2},
                        {"beta_8", link.beta_8},
                        {"overlaps", link.overlaps},
                        {"gradient_bytes", bytes}});
}

// Against the reference, which has all of the batch (strong) or one of n such batches (weak).
Json row_of(Scaling mode, int n, const Prediction& predicted, const Contender& reference) {
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

// Returns how far apart they are, as a part of what was measured; below 0 where that has too few turns.
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
  constexpr int kTurns = 5;
  const auto device = plan.trainer.devices.front();
  const auto gradient_bytes = bytes_of_gradients(plan);
  const bool two_gpus = device.is_cuda() && cuda_devices().size() > 1;
  const auto other = two_gpus ? torch::Device(torch::kCUDA, device.index() == 0 ? 1 : 0) : device;
  const std::vector<torch::Device> devices{device, other};
  AllreduceRanks ranks(devices, plan.trainer.threads, {choose_allreduce(plan.trainer.allreduce, devices)});
  const auto seconds_of = [&](int64_t bytes) {
    ranks.set_count(bytes / static_cast<int64_t>(sizeof(float)));
    std::vector<double> turns;
    for (int turn = 0; turn < kTurns; ++turn) turns.push_back(ranks.seconds(0, kIterations));
    return median(turns);
  };
  const double small = seconds_of(sizeof(float));
  return measured_link(small, seconds_of(gradient_bytes), static_cast<double>(gradient_bytes), 2, two_gpus);
}

void report_prediction(BenchReport& report, const std::vector<Contender>& shards,
                       const std::vector<Contender>& measured, const Link& link, int most, int cores) {
  const auto& reference = measured.front();
  const auto device = reference.plan.trainer.devices.front();
  const auto compute = fit(shards);
  const auto bytes = static_cast<double>(bytes_of_gradients(reference.plan));
  print_model(report, compute, shards.front().neighbours, link, bytes);
  report.table("prediction", columns());
  double worst = -1;  // of what was measured
  std::set<Scaling> modes;
  for (const auto& contender : measured) modes.insert(contender.scaling);
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
  report.finding(
      fmt::format("where it was measured, a step takes what was predicted to within {:.1f} %", 100 * worst),
      {{"worst_error", worst}});
}

}  // namespace lockstep
