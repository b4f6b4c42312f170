// A kernel that lacks a barrier, and with the argument "fence" one that lacks a fence. ThreadSanitizer must
// find their races.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <cstring>

namespace {

using namespace lockstep::testing;

void pass_on(int* values) {
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  // a __syncthreads() is missing here
  const int neighbour = values[(threadIdx.x + 32) % 64];
  __syncthreads();
  values[threadIdx.x] = neighbour;
}

// The block that arrives last reads what the other one has stored.
void read_all(int* values, int* arrived) {
  values[blockIdx.x] = 1;
  // a __threadfence() is missing here
  if (atomicAdd(arrived, 1) == 1) values[blockIdx.x] += values[1 - blockIdx.x];
}

}  // namespace

int main(int argc, char** argv) {
  int values[64] = {};
  int arrived = 0;
  if (argc > 1 && std::strcmp(argv[1], "fence") == 0) {
    run_in_threads({2}, {1}, BlockTiming::kAllAtOnce, [&] { read_all(values, &arrived); });
  } else {
    run_in_threads({1}, {64}, BlockTiming::kOneByOne, [&] { pass_on(values); });
  }
}
