// A fake of torch's CUDA graphs on fake GPUs. A failed capture leaves the same things undone as in torch 2.11
// or 2.15. All captures on a GPU share its one random generator.
#pragma once

#include <atomic>

namespace lockstep::testing {

struct FakeTorchCuda {
  // True, as in torch 2.15: torch closes and releases a failed capture's pool. False, as in 2.11: the caller
  // must.
  std::atomic<bool> tidies_up = true;

  // Counts.
  std::atomic<int> captures = 0;  // successful ones
  std::atomic<int> replays = 0;
  std::atomic<int> open_pools = 0;       // pools that still receive allocations
  std::atomic<int> used_pools = 0;       // uses of pools by graphs
  std::atomic<int> generator_users = 0;  // graphs registered with a generator
  std::atomic<int> races = 0;            // times that two threads used one GPU's generator
  std::atomic<int> unasked_errors = 0;   // errors that cudaGetLastError() would still return
  std::atomic<bool> generator_captures = false;
};

FakeTorchCuda& fake_torch_cuda();

}  // namespace lockstep::testing
