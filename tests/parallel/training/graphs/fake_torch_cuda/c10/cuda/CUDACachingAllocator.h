// As much of torch's header as parallel/training/graphs/step_graph_cuda.cpp uses.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

namespace c10::cuda::CUDACachingAllocator {

void endAllocateToPool(DeviceIndex device, MempoolId_t pool);
void releasePool(DeviceIndex device, MempoolId_t pool);

}  // namespace c10::cuda::CUDACachingAllocator
