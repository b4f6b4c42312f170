#include <lockstep/support/cuda/fault.h>

#include <fmt/format.h>

namespace lockstep {
namespace {

// cudaError_t, whose numbers CUDA never changes.
enum Code {
  kMemoryAllocation = 2,
  kInsufficientDriver = 35,
  kInvalidDeviceFunction = 98,
  kNoDevice = 100,
  kNoKernelImage = 209,
  kUnsupportedPtx = 222,
  kSystemDriverMismatch = 803,
};

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string gigabytes(uint64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9); }

std::string name_of(const CudaFault& fault) { return fault.device.empty() ? "the GPU" : fault.device; }

ErrorText cpu_list() { return NamedOption{"devices", "cpu", "the device list cpu"}; }

Error out_of_memory(const CudaFault& fault) {
  const auto fitting = std::to_string(fault.fitting_batch);
  const auto batch = fault.fitting_batch > 0
                         ? NamedOption{"batch_size", fitting, "batch size " + fitting} + ", which should fit"
                         : "a smaller " + NamedOption{"batch_size", "", "batch size"};
  return MemoryError(fmt::format("{} is out of memory: {} more were asked for, {} are free", name_of(fault),
                                 gigabytes(fault.asked_bytes), gigabytes(fault.free_bytes)),
                     "use " + batch + ", or fewer replicas on one GPU");
}

Error no_kernels(const CudaFault& fault) {
  if (fault.capability.empty()) {
    return DeviceError(fmt::format("this lockstep has no kernels for {}: {}", name_of(fault), fault.words),
                       "build it with -DCMAKE_CUDA_ARCHITECTURES=native");
  }
  auto number = fault.capability;
  std::erase(number, '.');
  return DeviceError(fmt::format("{} has compute capability {}, and this lockstep has kernels for {}",
                                 name_of(fault), fault.capability, fault.built_for),
                     fmt::format("build it with -DCMAKE_CUDA_ARCHITECTURES={}", number));
}

Error no_driver() {
  return DeviceError("no NVIDIA driver is installed on this machine", "use " + cpu_list());
}

Error old_driver(const CudaFault& fault) {
  return DeviceError(fmt::format("the NVIDIA driver supports CUDA up to {}, this lockstep needs CUDA {}",
                                 version_text(fault.driver_version), version_text(fault.runtime_version)),
                     "install a newer driver, or use " + cpu_list());
}

}  // namespace

Error explain(const CudaFault& fault) {
  switch (fault.code) {
    case kMemoryAllocation:
      return out_of_memory(fault);
    case kInsufficientDriver:
    case kSystemDriverMismatch:
      if (fault.driver_version > 0) return old_driver(fault);
      return no_driver();
    case kNoDevice:
      if (fault.driver_version == 0) return no_driver();
      return DeviceError("the NVIDIA driver shows no GPU to this process",
                         "CUDA_VISIBLE_DEVICES may hide it; nvidia-smi -L lists all GPUs");
    case kInvalidDeviceFunction:
    case kNoKernelImage:
    case kUnsupportedPtx:
      return no_kernels(fault);
    default:
      return FailedError(
          fmt::format("{} reported CUDA error {}: {}", name_of(fault), fault.code, fault.words),
          "this process cannot use the GPU any more; compute-sanitizer finds the faulty kernel, and "
          "nvidia-smi "
          "shows the GPU's state");
  }
}

}  // namespace lockstep
