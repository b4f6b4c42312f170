// Takes the place of flat_fill.cu in a build without CUDA.
#include <lockstep/parallel/gradients/flat_fill.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError(
      "the CUDA kernel that gathers gradients is not available: this lockstep was built "
      "without CUDA");
}

}  // namespace

void fill_flat(std::span<const FlatPiece<float>>, CUstream_st*) { refuse(); }
void fill_flat(std::span<const FlatPiece<double>>, CUstream_st*) { refuse(); }

}  // namespace lockstep
