// Takes the place of info.cu in a build without CUDA.
#include <lockstep/support/cuda/info.h>

namespace lockstep {

std::vector<CudaDevice> cuda_devices() { return {}; }

std::string cuda_build() { return "without CUDA"; }

std::string cuda_driver() { return {}; }

std::optional<std::string> cuda_problem() { return "this lockstep was built without CUDA"; }

std::optional<Error> cuda_device_problem(int) { return std::nullopt; }

std::string cuda_uuid(int) { return {}; }

bool cuda_peer_access(int, int) { return false; }

}  // namespace lockstep
