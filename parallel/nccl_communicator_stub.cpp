// The twin of nccl_communicator_cuda.cpp for a build without CUDA.
#include <lockstep/parallel/nccl_communicator.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError("this lockstep was built without NCCL",
                    "build with LOCKSTEP_BUILD_CUDA=on, or use --allreduce two_shot");
}

}  // namespace

std::string nccl_version() { return {}; }
void check_nccl_devices(std::span<const torch::Device>) { refuse(); }
std::string make_nccl_id() { refuse(); }
std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions) { refuse(); }

}  // namespace lockstep
