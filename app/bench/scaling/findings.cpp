#include <lockstep/app/bench/scaling/findings.h>

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
            "{} {}: {} ({:.2f} x the images per second of {}, the fastest of them alone); shares found: {}",
            name_of(kScalingNames, mixed.scaling), devices, answer, *gain,
            spec_of(fastest->plan.trainer.devices), fmt::join(mixed.shares, ":")),
        {{"devices", devices}, {"gain", *gain}, {"pays", *gain >= 1 + kMargin}, {"shares", mixed.shares}});
  }
}

}  // namespace lockstep
