// Launches kernels on a stream. For .cu files only.
#pragma once

#include <cuda_runtime.h>

#include <string>

#include <lockstep/support/error.h>

namespace lockstep {

class CudaLaunch {
 public:
  explicit CudaLaunch(cudaStream_t stream) : stream_(stream) {}

  // Returns before the kernel has run. Throws DeviceError if it could not be started or an earlier kernel
  // failed.
  template <class... Params, class... Args>
  void operator()(void (*kernel)(Params...), dim3 grid, dim3 block, Args... args) const {
    kernel<<<grid, block, 0, stream_>>>(static_cast<Params>(args)...);
    if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess) {
      throw DeviceError(std::string("a CUDA kernel could not be started: ") + cudaGetErrorString(status));
    }
  }

 private:
  cudaStream_t stream_;
};

}  // namespace lockstep
