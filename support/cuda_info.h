// What CUDA there is, in this build and on this machine. Needs no torch: it is what can still say why torch
// finds no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct CudaDevice {
  std::string name;
  int capability_major = 0;
  int capability_minor = 0;
  uint64_t total_bytes = 0;
  uint64_t free_bytes = 0;
  int multiprocessors = 0;
};

// Every device that this process can see; empty where CUDA cannot be used.
std::vector<CudaDevice> cuda_devices();

// What this program was built with: "CUDA 13.0", or "without CUDA".
std::string cuda_build();

// One sentence on why CUDA cannot be used; empty when it can.
std::optional<std::string> cuda_problem();

}  // namespace lockstep
