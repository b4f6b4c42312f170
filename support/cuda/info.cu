// Uses only the CUDA runtime, so that it can tell why torch finds no GPU.
#include <cuda_runtime_api.h>
#include <lockstep/support/cuda/fault.h>
#include <lockstep/support/cuda/info.h>

namespace lockstep {
namespace {

// CUDA writes 13.0 as 13000.
std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// 0 where there is no driver.
int driver_version() {
  int version = 0;
  return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

__global__ void probe() {}

// Restores the calling thread's current device, which the functions below change.
class DeviceRestore {
 public:
  DeviceRestore() { cudaGetDevice(&device_); }
  ~DeviceRestore() { cudaSetDevice(device_); }
  DeviceRestore(const DeviceRestore&) = delete;
  DeviceRestore& operator=(const DeviceRestore&) = delete;

 private:
  int device_ = 0;
};

}  // namespace

std::vector<CudaDevice> cuda_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    return {};
  }
  const DeviceRestore restore;
  std::vector<CudaDevice> devices;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess || cudaSetDevice(index) != cudaSuccess ||
        cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess) {
      // A device that cannot be queried (in exclusive use, lost) is listed without memory.
      cudaGetLastError();
    }
    devices.push_back({properties.name, properties.major, properties.minor, total_bytes, free_bytes,
                       properties.multiProcessorCount});
  }
  return devices;
}

std::string cuda_build() { return "CUDA " + version_text(CUDART_VERSION); }

std::string cuda_driver() {
  const int version = driver_version();
  cudaGetLastError();
  return version > 0 ? version_text(version) : "";
}

std::optional<std::string> cuda_problem() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();  // clears the error, or the next caller of the runtime would see it
  if (status == cudaSuccess && count > 0) return std::nullopt;
  return explain({.code = status == cudaSuccess ? cudaErrorNoDevice : status,
                  .words = cudaGetErrorString(status),
                  .driver_version = driver_version(),
                  .runtime_version = CUDART_VERSION})
      .message();
}

std::optional<Error> cuda_device_problem(int index) {
  const DeviceRestore restore;
  cudaDeviceProp properties{};
  cudaFuncAttributes attributes{};
  cudaError_t status = cudaSetDevice(index);
  if (status == cudaSuccess) status = cudaGetDeviceProperties(&properties, index);
  // Loads the kernel, which fails on a GPU that it was not compiled for.
  if (status == cudaSuccess) status = cudaFuncGetAttributes(&attributes, probe);
  cudaGetLastError();
  if (status == cudaSuccess) return std::nullopt;
  return explain({.code = status,
                  .words = cudaGetErrorString(status),
                  .device = "cuda:" + std::to_string(index),
                  .driver_version = driver_version(),
                  .runtime_version = CUDART_VERSION,
                  .capability = std::to_string(properties.major) + "." + std::to_string(properties.minor),
                  .built_for = LOCKSTEP_CUDA_ARCHITECTURES});
}

std::string cuda_uuid(int index) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, index);
  cudaGetLastError();
  if (status != cudaSuccess) return {};
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const char c : properties.uuid.bytes) {
    if (text.size() == 8 || text.size() == 13 || text.size() == 18 || text.size() == 23) text += '-';
    const auto byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

bool cuda_peer_access(int index, int peer) {
  int can = 0;
  const cudaError_t status = cudaDeviceCanAccessPeer(&can, index, peer);
  cudaGetLastError();
  return status == cudaSuccess && can != 0;
}

}  // namespace lockstep
