#include <lockstep/app/bench/allreduce/row.h>

#include <lockstep/support/statistics.h>

namespace lockstep {

Json allreduce_row(const BenchReplicas& replicas, int threads, Allreduce algorithm, int64_t bytes,
                   const SumFacts& facts, const Seconds& seconds, const Seconds& copies) {
  const int ranks = replicas.count();
  const double algbw = static_cast<double>(bytes) / median(seconds) / 1e9;
  auto row = times_row({{"devices", replicas.spec()},
                        {"ranks", ranks},
                        {"processes", replicas.world.place.processes},
                        {"algorithm", name_of(kAllreduceNames, algorithm)},
                        {"bytes", bytes},
                        {"count", bytes / static_cast<int64_t>(sizeof(float))}},
                       seconds, kMicroseconds);
  row["algbw"] = algbw;
  row["busbw"] = algbw * 2 * (ranks - 1) / ranks;
  row["wrong"] = facts.wrong;
  row["copy_us"] = 1e6 * median(copies);
  row["over_copy"] = or_null(paired_ratio(seconds, copies));
  row["threads"] = threads;
  row["wire_bytes"] = or_null(facts.wire_bytes);
  return row;
}

}  // namespace lockstep
