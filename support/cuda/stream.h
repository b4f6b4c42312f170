// Streams of devices through c10, which works in builds with and without CUDA.
#pragma once

#include <c10/core/Stream.h>

struct CUstream_st;

namespace lockstep {

// The calling thread's current stream on this device, which must not be a CPU.
c10::Stream current_stream(c10::Device device);

// The same as a cudaStream_t, for CUDA's functions and lockstep's kernels; null on a CPU.
CUstream_st* native_stream(c10::Device device);

// Work queued on `later` from now on starts after the work that is now on `earlier`. The host does not wait.
void order_after(const c10::Stream& later, const c10::Stream& earlier);

// Blocks until all work on all streams of the device is done. Does nothing on a CPU.
void synchronize_device(c10::Device device);

}  // namespace lockstep
