// Copies numbers of the host to a device, such as a batch's row numbers to the one that gathers the rows.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace lockstep {

// Copies a tensor of the host into one of its sizes and dtype. On a GPU the copy is queued on the current
// stream, the host does not wait, and may write to or free its tensor at once.
void upload(const torch::Tensor& from, const torch::Tensor& into);

// Throws DataError for a row outside 0 .. size - 1.
void require_rows_exist(std::span<const int64_t> rows, int64_t size);

// Writes the row numbers (n) into `into`, int64 on `device`; in place if it is (n) on `device` already, else
// in a new tensor. On a GPU the copy is queued on the current stream and the host does not wait. Throws as
// require_rows_exist() does, before it writes anything: a kernel cannot report such a row, and would make the
// GPU unusable for this process.
void upload_rows(std::span<const int64_t> rows, int64_t size, torch::Device device, torch::Tensor& into);

}  // namespace lockstep
