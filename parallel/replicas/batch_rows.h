// The batches that Replicas deals to its replicas. A batch is whatever has rows:
//
//   int64_t                        a number of rows: a replica gets RowRange, and makes or loads them itself
//   std::vector<int64_t>, a span   numbers of rows, such as those of batch_order(): a replica gets a span
//   torch::Tensor                  its first dimension counts rows
//   std::pair, tuple, array        of batches with as many rows each: a replica gets a std::tuple
//   std::vector<torch::Tensor>     likewise: a replica gets a vector
//   lockstep::Batch                named tensors: a replica gets a Batch
//   torch::data::Example<>         likewise: a replica gets an Example; TensorExample, without a target, too
//   your own type                  with `int64_t rows() const` and `shard(begin, rows, device) const`
//
// Tensors of a shard are on the replica's device: views if the batch is there, else copies. A copy to a GPU
// waits for it, and so for the steps that are queued there: give numbers of rows and load on the replica, or
// a type of your own that copies from pinned memory, where that counts. A shard may have 0 rows.
#pragma once

#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/support/batch.h>

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

// Add to a digest what tells these from others: all numbers in their order. Of a tensor these are its sizes
// and elements if it is of int64 and on the host, such as labels and token ids; else nothing.
void add_rows(std::span<const int64_t> rows, uint64_t& digest);
void add_tensor(const torch::Tensor& batch, uint64_t& digest);

template <class B>
concept RowNumbers = std::is_convertible_v<const B&, std::span<const int64_t>>;
template <class B>
concept TupleOfBatches = requires {
  std::tuple_size<B>::value;
};
template <class B>
concept TensorOrTensors = std::is_same_v<B, torch::Tensor> || std::is_same_v<B, std::vector<torch::Tensor>>;
template <class B>
concept HasTarget = requires(const B& batch) {
  batch.target;
};
template <class B>
concept ExampleWithoutTarget = !HasTarget<B> && requires(const B& batch) {
  requires TensorOrTensors<std::remove_cvref_t<decltype(batch.data)>>;
};
template <class B>
concept ExampleWithTarget = requires(const B& batch) {
  requires TensorOrTensors<std::remove_cvref_t<decltype(batch.data)>>;
  requires TensorOrTensors<std::remove_cvref_t<decltype(batch.target)>>;
};
template <class B>
concept OwnBatch = requires(const B& batch, int64_t row, torch::Device device) {
  { batch.rows() } -> std::convertible_to<int64_t>;
  batch.shard(row, row, device);
};

template <class B>
constexpr bool is_batch();

template <class Tuple, size_t... I>
constexpr bool are_batches(std::index_sequence<I...>) {
  return (is_batch<std::remove_cvref_t<std::tuple_element_t<I, Tuple>>>() && ...);
}

template <class B>
constexpr bool is_batch() {
  if constexpr (std::is_integral_v<B>) {
    return !std::is_same_v<B, bool>;
  } else if constexpr (TensorOrTensors<B> || std::is_same_v<B, Batch> || RowNumbers<B>) {
    return true;
  } else if constexpr (TupleOfBatches<B>) {
    return are_batches<B>(std::make_index_sequence<std::tuple_size_v<B>>());
  } else {
    return ExampleWithTarget<B> || ExampleWithoutTarget<B> || OwnBatch<B>;
  }
}

// The types of the table above.
template <class B>
concept BatchWithRows = is_batch<B>();

// The number of rows of a batch. Throws UsageError for one whose parts differ.
template <BatchWithRows B>
int64_t batch_rows(const B& batch) {
  if constexpr (std::is_integral_v<B>) {
    return static_cast<int64_t>(batch);
  } else if constexpr (std::is_same_v<B, torch::Tensor>) {
    return rows_of_tensor(batch);
  } else if constexpr (std::is_same_v<B, std::vector<torch::Tensor>>) {
    std::vector<int64_t> rows;
    for (const auto& part : batch) rows.push_back(rows_of_tensor(part));
    return require_same_rows(rows);
  } else if constexpr (RowNumbers<B>) {
    return static_cast<int64_t>(std::span<const int64_t>(batch).size());
  } else if constexpr (TupleOfBatches<B>) {
    return std::apply([](const auto&... part) { return require_same_rows({batch_rows(part)...}); }, batch);
  } else if constexpr (ExampleWithTarget<B>) {
    return require_same_rows({batch_rows(batch.data), batch_rows(batch.target)});
  } else if constexpr (ExampleWithoutTarget<B>) {
    return batch_rows(batch.data);
  } else {
    return batch.rows();
  }
}

// Rows begin .. begin + rows - 1.
template <BatchWithRows B>
auto batch_shard(const B& batch, int64_t begin, int64_t rows, torch::Device device) {
  [[maybe_unused]] const auto shard = [&](const auto& part) {
    return batch_shard(part, begin, rows, device);
  };
  if constexpr (std::is_integral_v<B>) {
    return RowRange{.begin = begin, .rows = rows};
  } else if constexpr (std::is_same_v<B, torch::Tensor>) {
    return batch.narrow(0, begin, rows).to(device);
  } else if constexpr (std::is_same_v<B, std::vector<torch::Tensor>>) {
    std::vector<torch::Tensor> parts;
    for (const auto& part : batch) parts.push_back(shard(part));
    return parts;
  } else if constexpr (std::is_same_v<B, Batch>) {
    return batch.narrow(begin, rows).to(device);
  } else if constexpr (RowNumbers<B>) {
    return std::span<const int64_t>(batch).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
  } else if constexpr (TupleOfBatches<B>) {
    return std::apply([&](const auto&... part) { return std::make_tuple(shard(part)...); }, batch);
  } else if constexpr (ExampleWithTarget<B>) {
    return B(shard(batch.data), shard(batch.target));
  } else if constexpr (ExampleWithoutTarget<B>) {
    return B(shard(batch.data));
  } else {
    return batch.shard(begin, rows, device);
  }
}

template <BatchWithRows B>
void add_batch(const B& batch, uint64_t& digest) {
  [[maybe_unused]] const auto add = [&](const auto& part) { add_batch(part, digest); };
  if constexpr (std::is_same_v<B, torch::Tensor>) {
    add_tensor(batch, digest);
  } else if constexpr (std::is_same_v<B, std::vector<torch::Tensor>>) {
    for (const auto& part : batch) add_tensor(part, digest);
  } else if constexpr (std::is_same_v<B, Batch>) {
    for (size_t i = 0; i < batch.size(); ++i) add_tensor(batch[i], digest);
  } else if constexpr (RowNumbers<B>) {
    add_rows(batch, digest);
  } else if constexpr (TupleOfBatches<B>) {
    std::apply([&](const auto&... part) { (add(part), ...); }, batch);
  } else if constexpr (ExampleWithTarget<B>) {
    add(batch.data);
    add(batch.target);
  } else if constexpr (ExampleWithoutTarget<B>) {
    add(batch.data);
  }
}

// Tells batches of different processes from each other, but for one pair in 2^64, as far as they have numbers
// of rows, or tensors of int64 on the host. Looks at no other values.
template <BatchWithRows B>
uint64_t batch_digest(const B& batch) {
  uint64_t digest = 0;
  add_batch(batch, digest);
  return digest;
}

}  // namespace lockstep
