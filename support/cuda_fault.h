// What CUDA reports, in words that say what to do. Pure: what there is to know is handed in, so that every
// message can be tested without a GPU.
#pragma once

#include <cstdint>
#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

struct CudaFault {
  int code = 0;             // a cudaError_t
  std::string words = {};   // CUDA's own
  std::string device = {};  // such as "cuda:0"; empty where none is known

  // For versions that do not fit; as CUDA writes them, 13000 for 13.0. 0: unknown, or there is no driver.
  int driver_version = 0;
  int runtime_version = 0;

  // For a GPU that the program has no kernels for.
  std::string capability = {};  // its own, "7.5"
  std::string built_for = {};   // those that there are kernels for, "8.0 9.0"

  // For memory that is not there.
  uint64_t asked_bytes = 0;
  uint64_t free_bytes = 0;
  int64_t fitting_batch = 0;  // --batch-size that would fit by our estimate; 0: unknown
};

// MemoryError, DeviceError, or FailedError for what went wrong while a kernel ran.
Error explain(const CudaFault& fault);

}  // namespace lockstep
