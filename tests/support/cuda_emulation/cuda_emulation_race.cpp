// A kernel that lacks a barrier. ThreadSanitizer must find its race.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

namespace {

void pass_on(int* values) {
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  // a __syncthreads() is missing here
  const int neighbour = values[(threadIdx.x + 32) % 64];
  __syncthreads();
  values[threadIdx.x] = neighbour;
}

}  // namespace

int main() {
  int values[64] = {};
  lockstep::testing::run_in_threads({1}, {64}, lockstep::testing::BlockTiming::kOneByOne,
                                    [&] { pass_on(values); });
}
