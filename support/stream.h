// Streams of any device that has them, through c10: the same lines serve a build without CUDA.
#pragma once

#include <c10/core/Stream.h>

struct CUstream_st;

namespace lockstep {

// The calling thread's current stream on a device that has streams.
c10::Stream current_stream(c10::Device device);

// The same as CUDA's own functions and our kernels take it; null on a processor.
CUstream_st* native_stream(c10::Device device);

// Work queued on `later` from now on starts after what is queued on `earlier` now. No host waits.
void order_after(const c10::Stream& later, const c10::Stream& earlier);

// Waits for all that is queued on all streams of a device; on a CPU there is nothing to wait for.
void synchronize_device(c10::Device device);

}  // namespace lockstep
