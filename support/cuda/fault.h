// Errors with hints from CUDA's error codes. explain() gets all facts as arguments, so every message can be
// tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

struct CudaFault {
  int code = 0;             // a cudaError_t
  std::string words = {};   // CUDA's text
  std::string device = {};  // such as "cuda:0"; empty: unknown

  // When the driver is too old: versions as CUDA writes them, 13000 for 13.0. 0: unknown, or no driver.
  int driver_version = 0;
  int runtime_version = 0;

  // When the program has no kernels for the GPU.
  std::string capability = {};  // the GPU's compute capability, "7.5"
  std::string built_for = {};   // the capabilities that the program has kernels for, "8.0 9.0"

  // When memory is out.
  uint64_t asked_bytes = 0;
  uint64_t free_bytes = 0;
  int64_t fitting_batch = 0;  // estimated batch size that would fit; 0: unknown
};

// Returns a MemoryError, a DeviceError, or a FailedError for an error in a kernel.
Error explain(const CudaFault& fault);

}  // namespace lockstep
