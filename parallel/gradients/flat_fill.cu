#include <lockstep/parallel/gradients/flat_fill_kernel.h>
#include <lockstep/support/cuda/launch.h>

namespace lockstep {

void fill_flat(std::span<const FlatPiece<float>> pieces, CUstream_st* stream) {
  fill_flat_with(CudaLaunch(stream), pieces);
}

void fill_flat(std::span<const FlatPiece<double>> pieces, CUstream_st* stream) {
  fill_flat_with(CudaLaunch(stream), pieces);
}

}  // namespace lockstep
