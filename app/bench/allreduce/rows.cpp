#include <lockstep/app/bench/allreduce/rows.h>

#include <lockstep/support/statistics.h>

namespace lockstep {

std::vector<Column> allreduce_columns(const TrainWorld& world) {
  std::vector<Column> columns = {
      {.key = "devices", .title = "devices", .width = 12, .digits = kText},
      {.key = "algorithm", .title = "algorithm", .width = 9, .digits = kText},
      {.key = "bytes", .title = "size", .unit = "B", .width = 10},
      {.key = "count", .title = "count", .unit = "floats", .width = 9},
      {.key = "us", .title = "time", .unit = "us", .width = 9, .digits = 1},
      {.key = "iqr", .title = "IQR", .unit = "%", .width = 6, .digits = 1},
      {.key = "algbw", .title = "algbw", .unit = "GB/s", .width = 7, .digits = 2},
      {.key = "busbw", .title = "busbw", .unit = "GB/s", .width = 7, .digits = 2},
      {.key = "wrong", .title = "#wrong", .width = 6},
      {.key = "copy_us", .title = "copying", .unit = "us", .width = 9, .digits = 1},
      {.key = "over_copy", .title = "/ copying", .width = 9, .digits = 2},
      {.key = "repeats", .title = "repeats", .width = 7}};
  if (!world.single_process()) {
    columns.push_back({.key = "wire_bytes", .title = "on wire", .unit = "B", .width = 10});
  }
  return columns;
}

Json allreduce_row(const BenchReplicas& replicas, Allreduce algorithm, int64_t bytes, const SumFacts& facts,
                   const std::vector<double>& seconds, const std::vector<double>& copies) {
  const auto time = quartiles_of(seconds);
  const int ranks = replicas.count();
  const double algbw = static_cast<double>(bytes) / time.median / 1e9;
  return {{"devices", replicas.spec()},
          {"ranks", ranks},
          {"processes", replicas.world.place.processes},
          {"algorithm", name_of(kAllreduceNames, algorithm)},
          {"bytes", bytes},
          {"count", bytes / static_cast<int64_t>(sizeof(float))},
          {"us", 1e6 * time.median},
          {"low_us", 1e6 * time.low},
          {"high_us", 1e6 * time.high},
          {"iqr", 100 * time.relative_iqr()},
          {"algbw", algbw},
          {"busbw", algbw * 2 * (ranks - 1) / ranks},
          {"wrong", facts.wrong},
          {"copy_us", 1e6 * median(copies)},
          {"over_copy", or_null(paired_ratio(seconds, copies))},
          {"repeats", time.repeats},
          {"threads", facts.threads},
          {"wire_bytes", or_null(facts.wire_bytes)}};
}

}  // namespace lockstep
