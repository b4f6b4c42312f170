// The rows of a batch on their way to the device that gathers them.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <span>

namespace lockstep {

// Writes row numbers of a set of `size` rows into `into` (n) int64 on `device`, in place where it has that
// shape already. On a GPU the copy is queued on the current stream and the host does not wait. Throws
// DataError for a row outside 0 .. size - 1, before anything is written: a kernel could only end the
// process's use of the GPU.
void upload_rows(std::span<const int64_t> rows, int64_t size, torch::Device device, torch::Tensor& into);

}  // namespace lockstep
