#include <lockstep/app/bench/scaling/schemes.h>

#include <fmt/format.h>

#include <string>
#include <vector>

#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

std::vector<Column> scheme_columns(bool of_processes) {
  std::vector<Column> columns = {
      {.key = "mode", .title = "mode", .width = 6, .digits = kText},
      {.key = "replicas", .title = "replicas", .width = 8},
      {.key = "shard", .title = "--shard", .width = 9, .digits = kText},
      {.key = "sent_mb", .title = "sent", .unit = "MB", .width = 8, .digits = 2},
      {.key = "held_mb", .title = "held", .unit = "MB", .width = 8, .digits = 2},
      {.key = "sums_ms", .title = "sums", .unit = "ms", .width = 8, .digits = 3},
      {.key = "update_ms", .title = "update", .unit = "ms", .width = 7, .digits = 3},
      {.key = "fetches_ms", .title = "fetches", .unit = "ms", .width = 8, .digits = 3},
      {.key = "exposed_ms", .title = "exposed", .unit = "ms", .width = 8, .digits = 3},
      {.key = "ms", .title = "step", .unit = "ms", .width = 9, .digits = 3}};
  if (of_processes)
    columns.insert(columns.begin() + 1, {.key = "processes", .title = "processes", .width = 9});
  return columns;
}

// One step, on so many replicas.
Json scheme_row(const ShardSchemes& schemes, Scaling mode, int n, Shard shard) {
  const auto predicted = schemes.predict(mode, n, shard);
  const int replicas = n * schemes.replicas_each;
  return {{"mode", name_of(kScalingNames, mode)},
          {"replicas", replicas},
          {"processes", schemes.of_processes ? n : 1},
          {"shard", name_of(kShardNames, shard)},
          {"sent_mb", 2. * (n - 1) / n * schemes.gradient_bytes / 1e6},
          {"held_mb", static_cast<double>(held_bytes(schemes.plan, replicas, shard).all()) / 1e6},
          {"sums_ms", 1e3 * predicted.sums},
          {"update_ms", 1e3 * predicted.update},
          {"fetches_ms", 1e3 * predicted.fetches},
          {"exposed_ms", 1e3 * predicted.exposed},
          {"ms", 1e3 * predicted.step()}};
}

double ratio_of(const Json& one, const Json& other, const char* key) {
  return one.at(key).get<double>() / other.at(key).get<double>();
}

// The two rows of most replicas.
void report_most(BenchReport& report, const Json& shared, const Json& whole) {
  const double time = ratio_of(shared, whole, "ms"), memory = ratio_of(shared, whole, "held_mb");
  const int replicas = shared.at("replicas").get<int>();
  report.finding(fmt::format("{} scaling on {}: with --shard {} a step takes {:.2f} of the time, and each "
                             "replica keeps {:.2f} of the bytes",
                             shared.at("mode").get<std::string>(), counted(replicas, "replica"),
                             shared.at("shard").get<std::string>(), time, memory),
                 {{"mode", shared.at("mode")}, {"replicas", replicas}, {"time", time}, {"memory", memory}});
}

}  // namespace

void report_schemes(BenchReport& report, const ShardSchemes& schemes) {
  report.note(
      "with --shard the sums go to the owners of parts, each updates its part, and all fetch the weights:");
  report.note(
      "sum(n)/2, update/replicas and sum(n)/2; exposed are sums beyond backward, fetches beyond the update");
  report.table("schemes", scheme_columns(schemes.of_processes));
  std::vector<std::pair<Json, Json>> most;  // by mode
  for (const auto mode : schemes.modes) {
    for (const int n : schemes.units) {
      if (n < 2) continue;
      const auto whole = scheme_row(schemes, mode, n, Shard::kNone);
      const auto shared = scheme_row(schemes, mode, n, schemes.plan.trainer.shard);
      report.row(whole);
      report.row(shared);
      if (n == *schemes.units.rbegin()) most.emplace_back(shared, whole);
    }
  }
  for (const auto& [shared, whole] : most) report_most(report, shared, whole);
}

}  // namespace lockstep
