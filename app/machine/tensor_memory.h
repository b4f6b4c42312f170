// The memory that tensors on the CPU take.
#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

// Runs `work` in the calling thread and returns the most bytes that the tensors hold at once which it makes
// in this thread: those of backward passes, too. Tensors that were there before do not count, also where it
// frees them.
int64_t peak_tensor_bytes(const std::function<void()>& work);

}  // namespace lockstep
