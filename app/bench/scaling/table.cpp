#include <lockstep/app/bench/scaling/table.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/parallel/devices.h>
#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr double kRounding = 1e-9;
constexpr double kMargin = .03;  // a smaller gain or loss is noise

}  // namespace

std::vector<Column> scaling_columns(bool of_processes, const std::string& row_noun) {
  return {{.key = "mode", .title = "mode", .width = 6, .digits = kText},
          {.key = "devices", .title = "devices", .width = of_processes ? 18 : 12, .digits = kText},
          {.key = "batch_size", .title = "batch", .unit = row_noun + "s", .width = 8},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "seconds_per_epoch", .title = "epoch", .unit = "s", .width = 7, .digits = 1},
          {.key = "speedup", .title = "speed-up", .width = 8, .digits = 2},
          {.key = "efficiency", .title = "efficiency", .unit = "%", .digits = 1},
          {.key = "exposed_sync", .title = "exposed sync", .unit = "%", .digits = 2},
          {.key = "accuracy", .title = "test acc", .width = 8, .digits = 3}};
}

Json scaling_row(const ScalingCase& measured, const ScalingCase& reference) {
  const auto faster = speed_up(measured, reference);
  const auto exposed = paired_ratio(measured.sync, measured.seconds);
  const auto& plan = measured.plan;
  auto row = times_row({{"mode", measured.replicas() == 1 ? "one" : name_of(kScalingNames, measured.scaling)},
                        {"devices", measured.devices},
                        {"replicas", measured.replicas()},
                        {"processes", plan.world.place.processes},
                        {"threads", replica_threads(plan.trainer)},
                        {"model", plan.model},
                        {"batch_size", static_cast<int64_t>(measured.rows())},
                        {"lr", plan.trainer.lr.lr}},
                       measured.seconds, kMilliseconds);
  row["seconds_per_epoch"] = median(measured.seconds) * static_cast<double>(plan.steps_per_epoch);
  row["speedup"] = or_null(faster);
  row["efficiency"] = faster ? Json(100 * *faster / measured.replicas()) : Json();
  row["exposed_sync"] = exposed ? Json(100 * *exposed) : Json();
  row["accuracy"] = or_null(measured.accuracy);
  return row;
}

void check_case(BenchReport& report, const ScalingCase& measured, const ScalingCase& reference,
                const TrainPlan& all, LargestOfAll& largest) {
  const auto mode = name_of(kScalingNames, measured.scaling);
  report.check(fmt::format("{} {}: replicas", mode, measured.devices), measured.agree,
               measured.agree ? "all have the same weights" : "their weights differ");
  // By a plan that every process has: weights_apart() waits for all, also for those that waited in this case.
  if (measured.scaling != Scaling::kStrong || all.has_statistics_per_replica()) return;
  const double apart = weights_apart(measured, reference, largest);
  report.check(
      fmt::format("{} {}: update", mode, measured.devices), apart <= kRounding,
      fmt::format("three steps in double differ from one device's by {:.1e}, rounding is at most {:.0e}",
                  apart, kRounding));
}

void answer_mixing(BenchReport& report, const std::vector<ScalingCase>& cases) {
  for (const auto& mixed : cases) {
    if (!mixed.plan.trainer.auto_split || mixed.replicas() == 1) continue;
    const ScalingCase* fastest = nullptr;
    for (const auto& alone : cases) {
      const auto& devices = mixed.plan.trainer.devices;
      if (alone.replicas() > 1) continue;
      if (std::find(devices.begin(), devices.end(), alone.plan.trainer.devices.front()) == devices.end())
        continue;
      if (!fastest || median(alone.seconds) < median(fastest->seconds)) fastest = &alone;
    }
    const auto gain = fastest ? speed_up(mixed, *fastest) : std::nullopt;
    if (!gain) continue;
    const char* answer = "sharing the work by speed makes no difference";
    if (*gain >= 1 + kMargin) answer = "sharing the work by speed pays";
    if (*gain <= 1 - kMargin) answer = "sharing the work does not pay";
    const auto devices = spec_of(mixed.plan.trainer.devices);
    report.finding(
        fmt::format(
            "{} {}: {} ({:.2f} x the {}s per second of {}, the fastest of them alone); shares found: {}",
            name_of(kScalingNames, mixed.scaling), devices, answer, *gain, mixed.plan.data.set.row_noun,
            spec_of(fastest->plan.trainer.devices), fmt::join(mixed.shares, ":")),
        {{"devices", devices}, {"gain", *gain}, {"pays", *gain >= 1 + kMargin}, {"shares", mixed.shares}});
  }
}

}  // namespace lockstep
