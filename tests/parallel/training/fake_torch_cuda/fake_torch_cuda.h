// torch's CUDA graphs over the fake GPUs, with what torch 2.11 and 2.15 leave to do after a capture that
// failed, and with the one random generator of a GPU that all captures there share.
#pragma once

#include <atomic>

namespace lockstep::testing {

struct FakeTorchCuda {
  // A failed capture's pool is closed and released by torch, as 2.15 does; else as 2.11: the caller has to.
  std::atomic<bool> tidies_up = true;

  // What has happened.
  std::atomic<int> captures = 0;  // that succeeded
  std::atomic<int> replays = 0;
  std::atomic<int> open_pools = 0;       // that memory still goes to
  std::atomic<int> used_pools = 0;       // times that a pool is in use
  std::atomic<int> generator_users = 0;  // graphs that are with a generator
  std::atomic<int> races = 0;            // two threads were at one GPU's generator
  std::atomic<int> unasked_errors = 0;   // that cudaGetLastError() would still tell
  std::atomic<bool> generator_captures = false;
};

FakeTorchCuda& fake_torch_cuda();

}  // namespace lockstep::testing
