// What CUDA there is, in this build and on this machine. Needs no torch: it is what can still say why torch
// finds no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/support/error.h>

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

// Why this program cannot compute on the index-th device, such as for want of kernels for its architecture;
// empty when it can.
std::optional<Error> cuda_device_problem(int index);

// Whether device `index` can read `peer`'s memory itself. Where it cannot, copies between them go through the
// host.
bool cuda_peer_access(int index, int peer);

}  // namespace lockstep
