// As much of torch's header, and of those that it includes, as parallel/training/graphs/step_graph_cuda.cpp
// uses.
#pragma once

#include <c10/core/Device.h>

int cudaGetLastError();

namespace c10::cuda {

DeviceIndex current_device();

}  // namespace c10::cuda
