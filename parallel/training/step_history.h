// What the steps of a trainer were given, as two numbers that processes compare: their own callers give the
// rows and rates, and nothing else would tell that these differ.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

class StepHistory {
 public:
  void add(std::span<const int64_t> rows, int64_t epoch, double lr);

  // Digests, which doubles can hold: below 2^53.
  double rows() const { return as_double(rows_); }
  double rates() const { return as_double(rates_); }

 private:
  static double as_double(uint64_t digest) { return static_cast<double>(digest >> 11); }

  uint64_t rows_ = 0, rates_ = 0;
};

}  // namespace lockstep
