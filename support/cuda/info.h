// CUDA in this build and on this machine. Needs no torch, so that it can tell why torch finds no GPU.
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

// Every GPU that this process can see; empty if CUDA cannot be used.
std::vector<CudaDevice> cuda_devices();

// "CUDA 13.0", the version this program was built with, or "without CUDA".
std::string cuda_build();

// The newest CUDA that the machine's driver knows, "13.0"; empty without a driver or in a build without CUDA.
std::string cuda_driver();

// One sentence that says why CUDA cannot be used; nullopt if it can.
std::optional<std::string> cuda_problem();

// The error when this program cannot compute on GPU `index`, such as one that it has no kernels for; nullopt
// when it can.
std::optional<Error> cuda_device_problem(int index);

// The GPU's UUID, such as "d8f4b1c2-...-0a1b2c3d4e5f" (32 hex digits in five groups; nvidia-smi prints it
// after "GPU-" or "MIG-"). It is the same in every process, whatever the GPU's index there. Each part of a
// GPU (MIG) has its own. Empty if CUDA does not tell.
std::string cuda_uuid(int index);

// Returns true if GPU `index` can read GPU `peer`'s memory directly. If not, copies go through the host.
bool cuda_peer_access(int index, int peer);

}  // namespace lockstep
