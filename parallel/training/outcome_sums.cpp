#include <lockstep/parallel/training/outcome_sums.h>

#include <c10/core/DeviceGuard.h>

#include <lockstep/parallel/training/number_sums.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep {
namespace {

using Numbers = c10::SmallVector<torch::Tensor, 8>;

// In the order of the sums, each of its own type.
Numbers numbers_of(const Outcome& outcome, const torch::Tensor& weight) {
  Numbers numbers{outcome.loss};
  for (const auto& metric : outcome.metrics) {
    numbers.push_back(metric.sum);
    if (metric.weight.defined()) numbers.push_back(metric.weight);
  }
  if (weight.defined()) numbers.push_back(weight);
  return numbers;
}

// Converts a number of a type that the kernel does not know.
DeviceNumber device_number(torch::Tensor& number) {
  const auto type = number.scalar_type();
  if (type == torch::kFloat32) return {number.const_data_ptr(), NumberType::kFloat};
  if (type == torch::kInt64) return {number.const_data_ptr(), NumberType::kInt64};
  number = number.to(torch::kFloat64);
  return {number.const_data_ptr(), NumberType::kDouble};
}

}  // namespace

int64_t sum_count(const Model& model) {
  int64_t count = model.weight ? 2 : 1;
  for (const auto& kind : model.metrics) count += kind.own_weight ? 2 : 1;
  return count;
}

torch::Tensor sums_of(const Outcome& outcome, const torch::Tensor& weight) {
  const torch::NoGradGuard no_grad;
  auto numbers = numbers_of(outcome, weight);
  for (auto& number : numbers) number = number.to(torch::kFloat64);
  return torch::stack(numbers);
}

bool add_on_gpu(const Outcome& outcome, const torch::Tensor& weight, const torch::Tensor& step,
                const torch::Tensor& sums) {
  if (sums.is_cpu()) return false;
  const torch::NoGradGuard no_grad;
  auto numbers = numbers_of(outcome, weight);
  if (numbers.size() > NumberSums::kMost) return false;
  const c10::DeviceGuard guard(sums.device());
  NumberSums all;
  all.count = static_cast<int>(numbers.size());
  all.sums = sums.mutable_data_ptr<double>();
  all.first_bad = all.sums + sums.numel() - 1;
  all.step = step.const_data_ptr<double>();
  for (size_t i = 0; i < numbers.size(); ++i) all.numbers[i] = device_number(numbers[i]);
  add_numbers(all, native_stream(sums.device()));
  return true;
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
