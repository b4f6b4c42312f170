// The one row that a torch::data Dataset gives for one row number, stacked or not.
#pragma once

#include <torch/data/example.h>
#include <torch/data/transforms/stack.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::detail {

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {
  using Row = T;
};

template <class T>
concept TensorRow = std::same_as<T, torch::Tensor> || std::same_as<T, torch::data::Example<>> ||
    std::same_as<T, torch::data::TensorExample>;

// The rows that a data set gives for one index, which must be one.
template <class Row>
int64_t rows_in(const std::vector<Row>& rows) {
  return static_cast<int64_t>(rows.size());
}
inline int64_t rows_in(const torch::Tensor& rows) { return rows.dim() > 0 ? rows.size(0) : 0; }
inline int64_t rows_in(const torch::data::TensorExample& rows) { return rows_in(rows.data); }
inline int64_t rows_in(const torch::data::Example<>& rows) { return rows_in(rows.data); }

// One row without its first dimension, of a data set that stacks them.
inline torch::Tensor unstacked(const torch::Tensor& rows) { return rows.select(0, 0); }
inline torch::data::TensorExample unstacked(const torch::data::TensorExample& rows) {
  return unstacked(rows.data);
}
inline torch::data::Example<> unstacked(const torch::data::Example<>& rows) {
  return {unstacked(rows.data), unstacked(rows.target)};
}

// Throws DataError unless the data set gave one row.
void require_one_row(int64_t rows);

// Returns the rows of a data set; throws UsageError if it does not know them.
int64_t checked_size(std::optional<size_t> size);

template <class Given>
auto only_row(Given given) {
  if constexpr (IsVector<Given>::value) {
    require_one_row(rows_in(given));
    return std::move(given.front());
  } else if constexpr (TensorRow<Given>) {
    require_one_row(rows_in(given));
    return unstacked(given);
  } else {
    return given;
  }
}

// Rows of tensors become a batch of tensors, others stay a vector of rows.
template <class Row>
auto collated(std::vector<Row> rows) {
  if constexpr (std::same_as<Row, torch::Tensor>) {
    return torch::stack(rows);
  } else if constexpr (TensorRow<Row>) {
    return torch::data::transforms::Stack<Row>().apply_batch(std::move(rows));
  } else {
    return rows;
  }
}

}  // namespace lockstep::detail
