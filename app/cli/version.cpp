#include <lockstep/app/cli/version.h>

#include <fmt/format.h>
#include <torch/version.h>

#include <lockstep/support/cuda/info.h>

namespace lockstep {

std::string version_text() {
  return fmt::format("lockstep {} (LibTorch {}, {})", LOCKSTEP_VERSION, TORCH_VERSION, cuda_build());
}

}  // namespace lockstep
