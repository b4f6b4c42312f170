// The batches that Replicas deals to its replicas. A batch is whatever has rows:
//
//   int64_t                        a number of rows: a replica gets RowRange, and makes or loads them itself
//   std::vector<int64_t>, a span   numbers of rows, such as those of batch_order(): a replica gets a span
//   torch::Tensor                  its first dimension counts rows
//   std::pair, tuple, array        of batches with as many rows each: a replica gets a std::tuple
//   std::vector<torch::Tensor>     likewise: a replica gets a vector
//   torch::data::Example<>         likewise: a replica gets an Example
//   your own type                  with `int64_t rows() const` and `shard(begin, rows, device) const`
//
// Tensors of a shard are on the replica's device: views if the batch is there, else copies. A shard may have
// 0 rows.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <vector>

namespace lockstep {

// Consecutive rows of a batch.
struct RowRange {
  int64_t begin = 0;
  int64_t rows = 0;

  int64_t end() const { return begin + rows; }
};

// Throws UsageError unless all are the same, and for none: the first dimensions of a batch's parts.
int64_t require_same_rows(const std::vector<int64_t>& parts);

// Throws UsageError for an undefined tensor, and one without dimensions.
int64_t rows_of_tensor(const torch::Tensor& batch);

// Equal for equal numbers, different for others but for one pair in 2^64.
uint64_t digest_of_rows(std::span<const int64_t> rows);
uint64_t digest_of_tensor(const torch::Tensor& batch);  // 0 for others than (n) int64 on the host

template <class B>
concept RowNumbers = std::is_convertible_v<const B&, std::span<const int64_t>>;
template <class B>
concept TupleOfBatches = requires {
  std::tuple_size<B>::value;
};
template <class B>
concept ExampleOfBatches = requires(const B& batch) {
  batch.data;
  batch.target;
};

// The number of rows of a batch. Throws UsageError for one whose parts differ.
template <class B>
int64_t batch_rows(const B& batch) {
  if constexpr (std::is_integral_v<B>) {
    return batch;
  } else if constexpr (std::is_same_v<B, torch::Tensor>) {
    return rows_of_tensor(batch);
  } else if constexpr (RowNumbers<B>) {
    return static_cast<int64_t>(std::span<const int64_t>(batch).size());
  } else if constexpr (TupleOfBatches<B>) {
    return std::apply([](const auto&... part) { return require_same_rows({batch_rows(part)...}); }, batch);
  } else if constexpr (std::is_same_v<B, std::vector<torch::Tensor>>) {
    std::vector<int64_t> rows;
    for (const auto& part : batch) rows.push_back(batch_rows(part));
    return require_same_rows(rows);
  } else if constexpr (ExampleOfBatches<B>) {
    return require_same_rows({batch_rows(batch.data), batch_rows(batch.target)});
  } else {
    return batch.rows();
  }
}

// Rows begin .. begin + rows - 1.
template <class B>
auto batch_shard(const B& batch, int64_t begin, int64_t rows, torch::Device device) {
  if constexpr (std::is_integral_v<B>) {
    return RowRange{.begin = begin, .rows = rows};
  } else if constexpr (std::is_same_v<B, torch::Tensor>) {
    return batch.narrow(0, begin, rows).to(device);
  } else if constexpr (RowNumbers<B>) {
    return std::span<const int64_t>(batch).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
  } else if constexpr (TupleOfBatches<B>) {
    return std::apply(
        [&](const auto&... part) { return std::make_tuple(batch_shard(part, begin, rows, device)...); },
        batch);
  } else if constexpr (std::is_same_v<B, std::vector<torch::Tensor>>) {
    std::vector<torch::Tensor> parts;
    for (const auto& part : batch) parts.push_back(batch_shard(part, begin, rows, device));
    return parts;
  } else if constexpr (ExampleOfBatches<B>) {
    return B(batch_shard(batch.data, begin, rows, device), batch_shard(batch.target, begin, rows, device));
  } else {
    return batch.shard(begin, rows, device);
  }
}

// Tells batches of different processes from each other as far as they have numbers of rows or integer labels;
// looks at no other values.
template <class B>
uint64_t batch_digest(const B& batch) {
  if constexpr (std::is_same_v<B, torch::Tensor>) {
    return digest_of_tensor(batch);
  } else if constexpr (RowNumbers<B>) {
    return digest_of_rows(batch);
  } else if constexpr (TupleOfBatches<B>) {
    return std::apply([](const auto&... part) { return (uint64_t{0} ^ ... ^ batch_digest(part)); }, batch);
  } else if constexpr (ExampleOfBatches<B>) {
    return batch_digest(batch.data) ^ batch_digest(batch.target);
  } else {
    return 0;
  }
}

}  // namespace lockstep
