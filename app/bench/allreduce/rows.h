// The table of `bench allreduce`.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/report.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// nccl-tests' columns and lockstep's own; for several processes also what travels between them.
std::vector<Column> allreduce_columns(const TrainWorld& world);

// The facts about the sums of one size by one algorithm, beside their times.
struct SumFacts {
  int threads = 1;
  int64_t wrong = 0;                       // elements
  std::optional<int64_t> wire_bytes = {};  // of a process and a sum; empty: unknown
};

// seconds: of one sum, by repetition; copies: see AllreduceRanks::copy_seconds(). algbw and busbw are as
// nccl-tests defines them (its doc/PERFORMANCE.md).
Json allreduce_row(const BenchReplicas& replicas, Allreduce algorithm, int64_t bytes, const SumFacts& facts,
                   const std::vector<double>& seconds, const std::vector<double>& copies);

}  // namespace lockstep
