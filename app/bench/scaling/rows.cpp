#include <lockstep/app/bench/scaling/rows.h>

#include <cstdint>
#include <optional>

#include <lockstep/support/statistics.h>

namespace lockstep {

std::vector<Column> scaling_columns(bool of_processes) {
  return {{.key = "mode", .title = "mode", .width = 6, .digits = kText},
          {.key = "devices", .title = "devices", .width = of_processes ? 18 : 12, .digits = kText},
          {.key = "batch_size", .title = "batch", .unit = "images", .width = 8},
          {.key = "ms", .title = "step", .unit = "ms", .width = 8, .digits = 2},
          {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
          {.key = "seconds_per_epoch", .title = "epoch", .unit = "s", .width = 7, .digits = 1},
          {.key = "speedup", .title = "speed-up", .width = 8, .digits = 2},
          {.key = "efficiency", .title = "efficiency", .unit = "%", .digits = 1},
          {.key = "exposed_sync", .title = "exposed sync", .unit = "%", .digits = 2},
          {.key = "accuracy", .title = "test acc", .width = 8, .digits = 3}};
}

namespace {

// Percent. Empty with too few repetitions.
std::optional<double> share_of(const std::vector<double>& part, const std::vector<double>& whole) {
  const auto ratio = paired_ratio(part, whole);
  return ratio ? std::optional(100 * *ratio) : std::nullopt;
}

}  // namespace

Json scaling_row(const ScalingCase& measured, const ScalingCase& reference) {
  const auto seconds = quartiles_of(measured.seconds);
  const auto faster = speed_up(measured, reference);
  const auto& plan = measured.plan;
  return {{"mode", measured.replicas() == 1 ? "one" : name_of(kScalingNames, measured.scaling)},
          {"devices", measured.devices},
          {"replicas", measured.replicas()},
          {"processes", plan.world.place.processes},
          {"threads", replica_threads(plan.trainer)},
          {"model", plan.model},
          {"batch_size", static_cast<int64_t>(measured.rows())},
          {"lr", plan.trainer.lr.lr},
          {"ms", 1e3 * seconds.median},
          {"low_ms", 1e3 * seconds.low},
          {"high_ms", 1e3 * seconds.high},
          {"repeats", seconds.repeats},
          {"iqr", 100 * seconds.relative_iqr()},
          {"seconds_per_epoch", seconds.median * static_cast<double>(plan.steps_per_epoch)},
          {"speedup", or_null(faster)},
          {"efficiency", faster ? Json(100 * *faster / measured.replicas()) : Json()},
          {"exposed_sync", or_null(share_of(measured.sync, measured.seconds))},
          {"accuracy", or_null(measured.accuracy)}};
}

}  // namespace lockstep
