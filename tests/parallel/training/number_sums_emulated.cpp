// add_numbers() for tests: runs the product's kernel on the CPU, in place of the library's function.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/parallel/training/number_sums_kernel.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

namespace lockstep {

void add_numbers(const NumberSums& numbers, CUstream_st*) {
  add_numbers_with(testing::FibreLaunch{testing::emulated_order}, numbers);
}

}  // namespace lockstep
