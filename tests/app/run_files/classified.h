// The sums of a run that trains a classification.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/support/row_sums.h>

namespace lockstep::testing {

inline const std::vector<MetricKind> kClassified = {{.name = "top1", .type = MetricType::kCount},
                                                    {.name = "top5", .type = MetricType::kCount}};

inline RowSums classified(double loss, int64_t rows, int64_t top1, int64_t top5 = 0) {
  auto sums = zero_sums(kClassified);
  sums.loss = loss;
  sums.rows = rows;
  sums.weight = static_cast<double>(rows);
  sums.metrics[0].sum = static_cast<double>(top1);
  sums.metrics[1].sum = static_cast<double>(top5);
  return sums;
}

}  // namespace lockstep::testing
