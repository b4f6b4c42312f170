#include <lockstep/data/row_values.h>

#include <fmt/format.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep {
namespace {

std::string found_in(const std::string& name, const torch::Tensor& labels, int64_t label, int64_t row) {
  return labels.scalar_type() == torch::kUInt64
             ? fmt::format("{} has {} in row {}", name, static_cast<uint64_t>(label), row)
             : fmt::format("{} has {} in row {}", name, label, row);
}

// The largest and the smallest label; why it is no class if one is not.
RowClasses classes_in(const torch::Tensor& labels, const std::string& name) {
  const auto numbers = labels.to(torch::kInt64);
  const auto lowest = numbers.min().item<int64_t>(), highest = numbers.max().item<int64_t>();
  const bool too_large = highest == std::numeric_limits<int64_t>::max();
  if (lowest >= 0 && !too_large) return {.count = highest + 1};
  const auto row = (too_large ? numbers.argmax() : numbers.argmin()).item<int64_t>();
  const auto label = too_large ? highest : lowest;
  return {.why_none = found_in(name, labels, label, row)};
}

// The first number that is wanted; `all` is flat. wanted(piece): which numbers of a piece are, or an
// undefined tensor where none is. A piece at a time, which needs little memory beside the tensor.
template <class Wanted>
std::optional<int64_t> find_first(const torch::Tensor& all, const Wanted& wanted) {
  constexpr int64_t kPiece = 1 << 20;
  for (int64_t begin = 0; begin < all.numel(); begin += kPiece) {
    const torch::Tensor found = wanted(all.narrow(0, begin, std::min(kPiece, all.numel() - begin)));
    if (!found.defined() || !found.any().template item<bool>()) continue;
    return begin + found.to(torch::kUInt8).argmax().template item<int64_t>();
  }
  return std::nullopt;
}

int64_t row_of(int64_t number, const torch::Tensor& tensor) {
  return number * tensor.size(0) / tensor.numel();
}

// As RowFaults::outside.
std::string outside_in(const torch::Tensor& target, const std::string& name, int64_t classes,
                       std::optional<int64_t> ignored) {
  const auto all = target.flatten();
  const auto first = find_first(all, [&](const torch::Tensor& piece) {
    const auto numbers = piece.to(torch::kInt64);
    const auto outside = numbers.lt(0).logical_or(numbers.ge(classes));
    return ignored ? outside.logical_and(numbers.ne(*ignored)) : outside;
  });
  if (!first) return "";
  return found_in(name, target, all[*first].to(torch::kInt64).item<int64_t>(), row_of(*first, target));
}

std::string not_finite_in(const torch::Tensor& values, const std::string& name) {
  if (!values.is_floating_point()) return "";
  const auto all = values.flatten();
  const auto first = find_first(all, [](torch::Tensor piece) {
    if (piece.element_size() < 4) piece = piece.to(torch::kFloat32);
    // A sum is far cheaper than a look at each number.
    return std::isfinite(piece.sum().item<double>()) ? torch::Tensor() : piece.isfinite().logical_not();
  });
  if (!first) return "";
  return fmt::format("{} has {} in row {}", name, all[*first].item<double>(), row_of(*first, values));
}

bool has_one_integer_target(const BatchSpec& spec) {
  return std::ranges::count(spec, Role::kTarget, &TensorSpec::role) == 1 &&
         at::isIntegralType(spec.back().dtype, /*includeBool=*/false);
}

}  // namespace

RowFaults faults_in(const Batch& rows, const char* part) {
  RowFaults faults;
  const auto full = [&](const TensorSpec& spec) { return fmt::format("{}.{}", part, spec.name); };
  for (size_t i = 0; i < rows.size() && faults.not_finite.empty(); ++i) {
    faults.not_finite = not_finite_in(rows[i], full(rows.spec()[i]));
  }
  if (!has_one_integer_target(rows.spec())) return faults;
  faults.outside = [target = rows.target(), name = full(rows.spec().back())](int64_t classes,
                                                                             std::optional<int64_t> ignored) {
    return outside_in(target, name, classes, ignored);
  };
  return faults;
}

RowClasses classes_of(const Batch& train_rows, const Batch& test_rows) {
  const auto& spec = train_rows.spec();
  const auto targets = std::ranges::count(spec, Role::kTarget, &TensorSpec::role);
  if (targets == 0) return {.why_none = "it has no target"};
  if (targets > 1) return {.why_none = fmt::format("it has {} targets", targets)};
  const auto& target = spec.back();
  if (!at::isIntegralType(target.dtype, /*includeBool=*/false) || !target.row_shape.empty()) {
    return {.why_none = fmt::format("its {}", to_string(target))};
  }
  const auto train = classes_in(train_rows.target(), "train." + target.name);
  if (!train.count) return train;
  const auto test = classes_in(test_rows.target(), "test." + target.name);
  return test.count ? std::max(train, test, [](const auto& a, const auto& b) { return a.count < b.count; })
                    : test;
}

}  // namespace lockstep
