#include <lockstep/support/row_numbers.h>

#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>

#include <lockstep/support/error.h>

namespace lockstep {

// Pinned, so that the host does not wait for the copy; torch keeps the memory until the copy is done.
void upload(const torch::Tensor& from, const torch::Tensor& into) {
  if (into.is_cpu()) {
    into.copy_(from);
    return;
  }
  auto staged = torch::empty(from.sizes(), torch::dtype(from.scalar_type()).pinned_memory(true));
  staged.copy_(from);
  into.copy_(staged, /*non_blocking=*/true);
}

void require_rows_exist(std::span<const int64_t> rows, int64_t size) {
  const auto outside =
      std::find_if(rows.begin(), rows.end(), [&](int64_t row) { return row < 0 || row >= size; });
  if (outside == rows.end()) return;
  throw DataError(fmt::format("row {} does not exist: the data set has rows 0 to {}", *outside, size - 1));
}

void upload_rows(std::span<const int64_t> rows, int64_t size, torch::Device device, torch::Tensor& into) {
  require_rows_exist(rows, size);
  const auto n = static_cast<int64_t>(rows.size());
  if (!into.defined() || into.numel() != n || into.device() != device) {
    into = torch::empty({n}, torch::dtype(torch::kInt64).device(device));
  }
  if (device.is_cpu()) {
    std::copy(rows.begin(), rows.end(), into.mutable_data_ptr<int64_t>());
    return;
  }
  upload(at::from_blob(const_cast<int64_t*>(rows.data()), {n}, torch::kInt64), into);
}

}  // namespace lockstep
