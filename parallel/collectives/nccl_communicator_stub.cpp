// Takes the place of nccl_communicator_cuda.cpp in a build without CUDA.
#include <lockstep/parallel/collectives/nccl_communicator.h>

#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

DeviceError without_nccl() {
  return DeviceError("this lockstep was built without NCCL",
                     "build with LOCKSTEP_BUILD_CUDA=on, or use " + named_allreduce(Allreduce::kTwoShot));
}

}  // namespace

std::string nccl_version() { return {}; }
std::exception_ptr nccl_problem(std::span<const torch::Device> devices) {
  for (const auto& device : devices) {
    if (!device.is_cpu()) continue;  // another build does not help here
    return std::make_exception_ptr(
        UsageError("NCCL works on GPUs only, but the devices include cpu",
                   "use " + named_allreduce(Allreduce::kTwoShot) + ", which works on any devices"));
  }
  return std::make_exception_ptr(without_nccl());
}
std::string make_nccl_id() { throw without_nccl(); }
std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions) { throw without_nccl(); }

}  // namespace lockstep
