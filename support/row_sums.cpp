#include <lockstep/support/row_sums.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <lockstep/support/error.h>

namespace lockstep {

double RowSums::value(const MetricSum& metric) const {
  const double mean = metric.sum / (metric.kind.own_weight ? metric.weight : static_cast<double>(rows));
  return metric.kind.finish ? metric.kind.finish(mean) : mean;
}

double RowSums::operator[](std::string_view name) const {
  std::vector<std::string> names;
  for (const auto& metric : metrics) {
    if (metric.kind.name == name) return value(metric);
    names.push_back(metric.kind.name);
  }
  throw UsageError(
      fmt::format("the model has no metric named {}", name),
      names.empty() ? "it declares none" : fmt::format("it declares {}", fmt::join(names, ", ")));
}

RowSums& RowSums::operator+=(const RowSums& other) {
  loss += other.loss;
  rows += other.rows;
  weight += other.weight;
  if (metrics.empty()) {
    metrics = other.metrics;
    return *this;
  }
  for (size_t i = 0; i < other.metrics.size(); ++i) {
    metrics.at(i).sum += other.metrics[i].sum;
    metrics[i].weight += other.metrics[i].weight;
  }
  return *this;
}

RowSums zero_sums(const std::vector<MetricKind>& metrics) {
  RowSums sums;
  for (const auto& kind : metrics) sums.metrics.push_back({.kind = kind});
  return sums;
}

RowSums zeros_like(const RowSums& sums) {
  RowSums zeros;
  for (const auto& metric : sums.metrics) zeros.metrics.push_back({.kind = metric.kind});
  return zeros;
}

}  // namespace lockstep
