// Sums over rows: the loss of a model, and the metrics that it declares.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class MetricType {
  kCount,  // of rows or other things: its sums are integers, exact up to 2^53
  kMean,   // of a number per row: its sums are floating point, added in double
};

// A metric, as a model declares it before the first row: a sum over the rows, divided by their number or by a
// weight of its own.
struct MetricKind {
  std::string name = {};
  MetricType type = MetricType::kMean;
  bool own_weight = false;                  // each outcome gives the weight beside the sum
  double (*finish)(double mean) = nullptr;  // of the whole mean, such as its root; null: the mean itself

  bool operator==(const MetricKind&) const = default;
};

struct MetricSum {
  MetricKind kind;
  double sum = 0;
  double weight = 0;  // if it has one of its own
};

struct RowSums {
  double loss = 0;  // sum of the rows' losses
  int64_t rows = 0;
  double weight = 0;                    // of the loss: the rows, unless the model has a weight
  std::vector<MetricSum> metrics = {};  // in the model's order

  double mean_loss() const { return loss / weight; }

  // The finished mean: of rows that count, their share.
  double value(const MetricSum& metric) const;

  // The same by name. Throws UsageError for an unknown one; the error lists the names.
  double operator[](std::string_view name) const;

  // Adds sums of the same metrics. Sums of none take the other's.
  RowSums& operator+=(const RowSums& other);
};

// Zeros, of these metrics.
RowSums zero_sums(const std::vector<MetricKind>& metrics);

// Zeros, of the same metrics.
RowSums zeros_like(const RowSums& sums);

}  // namespace lockstep
