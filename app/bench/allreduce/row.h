// A row of the table of `bench allreduce`.
#pragma once

#include <cstdint>
#include <optional>

#include <lockstep/app/report/bench_replicas.h>
#include <lockstep/app/report/report.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// The facts about the sums of one size by one algorithm, beside their times.
struct SumFacts {
  int64_t wrong = 0;                       // elements
  std::optional<int64_t> wire_bytes = {};  // of a process and a sum; empty: unknown
};

// seconds: of one sum, by repetition; copies: see AllreduceRanks::copy_seconds(). algbw and busbw are as
// nccl-tests defines them (its doc/PERFORMANCE.md).
Json allreduce_row(const BenchReplicas& replicas, int threads, Allreduce algorithm, int64_t bytes,
                   const SumFacts& facts, const Seconds& seconds, const Seconds& copies);

}  // namespace lockstep
