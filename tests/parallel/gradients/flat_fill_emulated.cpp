// fill_flat() for tests: runs the product's kernel on the CPU, in place of the library's function.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/parallel/gradients/flat_fill_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void fill_flat(std::span<const FlatPiece<float>> pieces, CUstream_st*) {
  fill_flat_with(testing::FibreLaunch{testing::emulated_order}, pieces);
}

void fill_flat(std::span<const FlatPiece<double>> pieces, CUstream_st*) {
  fill_flat_with(testing::FibreLaunch{testing::emulated_order}, pieces);
}

}  // namespace lockstep
