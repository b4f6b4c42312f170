#include <lockstep/parallel/training/outcome_sums.h>

namespace lockstep {

int64_t sum_count(const Model& model) {
  int64_t count = model.weight ? 2 : 1;
  for (const auto& kind : model.metrics) count += kind.own_weight ? 2 : 1;
  return count;
}

torch::Tensor sums_of(const Outcome& outcome, const torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  c10::SmallVector<torch::Tensor, 8> numbers{outcome.loss.to(torch::kFloat64)};
  for (const auto& metric : outcome.metrics) {
    numbers.push_back(metric.sum.to(torch::kFloat64));
    if (metric.weight.defined()) numbers.push_back(metric.weight.to(torch::kFloat64));
  }
  if (weight.defined()) numbers.push_back(weight);
  return torch::stack(numbers);
}

void add_sums(const Model& model, const double* sums, RowSums& into) {
  into.loss += *sums++;
  for (auto& metric : into.metrics) {
    metric.sum += *sums++;
    if (metric.kind.own_weight) metric.weight += *sums++;
  }
  if (model.weight) into.weight += *sums;
}

}  // namespace lockstep
