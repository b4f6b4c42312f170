// Processes compare the call that they make of their trainers, and the rows and rates that each was given, as
// two numbers. Each process's own caller gives them, and nothing else would tell that they differ.
#pragma once

#include <cstdint>
#include <span>

#include <lockstep/support/split_mix64.h>

namespace lockstep {

// All processes make it at the same point. kLeaveEpoch: a callback has thrown where an epoch ends.
enum class CommonCall { kTakeSums, kState, kLoad, kCheckSync, kEvaluate, kPredict, kEndEpoch, kLeaveEpoch };

class StepHistory {
 public:
  void add(std::span<const int64_t> rows, int64_t epoch, double lr);

  // Digests that a double can hold.
  double rows() const { return digest_of(rows_); }
  double rates() const { return digest_of(rates_); }

 private:
  static double digest_of(SplitMix64 keys) { return static_cast<double>(keys.next() >> 11); }

  SplitMix64 rows_{0, {}}, rates_{0, {}};  // each number is a key
};

}  // namespace lockstep
