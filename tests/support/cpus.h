// Lists of CPU devices.
#pragma once

#include <torch/types.h>

#include <vector>

namespace lockstep::testing {

inline std::vector<torch::Device> cpus(int count) {
  return std::vector(static_cast<size_t>(count), torch::Device(torch::kCPU));
}

}  // namespace lockstep::testing
