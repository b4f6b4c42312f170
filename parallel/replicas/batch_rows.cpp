#include <lockstep/parallel/replicas/batch_rows.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <lockstep/support/error.h>
#include <lockstep/support/split_mix64.h>

namespace lockstep {

int64_t require_same_rows(const std::vector<int64_t>& parts) {
  if (parts.empty()) {
    throw UsageError("a batch of no tensors has no rows", "give the tensors, or a number of rows");
  }
  if (std::ranges::all_of(parts, [&](int64_t rows) { return rows == parts.front(); })) return parts.front();
  throw UsageError(fmt::format("the parts of a batch have {} rows", fmt::join(parts, ", ")),
                   "the first dimension of each tensor counts the rows of the batch");
}

int64_t rows_of_tensor(const torch::Tensor& batch) {
  if (batch.defined() && batch.dim() > 0) return batch.size(0);
  throw UsageError(batch.defined() ? "a batch that is one number has no rows"
                                   : "a batch that is an undefined tensor has no rows",
                   "the first dimension of a batch counts its rows");
}

void add_rows(std::span<const int64_t> rows, uint64_t& digest) {
  SplitMix64 all(digest, {rows.size()});
  for (const auto row : rows) all.add_key(static_cast<uint64_t>(row));
  digest = all.next();
}

void add_tensor(const torch::Tensor& batch, uint64_t& digest) {
  if (batch.scalar_type() != torch::kInt64 || !batch.is_cpu()) return add_rows({}, digest);  // its place
  const auto elements = batch.contiguous();
  add_rows(batch.sizes(), digest);
  add_rows({elements.const_data_ptr<int64_t>(), static_cast<size_t>(elements.numel())}, digest);
}

}  // namespace lockstep
