// What an allreduce algorithm gets: one collective between the replicas of a process.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace lockstep {

// Every rank runs the same algorithm at the same time, in its own thread, and may read and write every rank's
// tensor. Only barrier() orders the ranks' accesses.
struct LocalRound {
  int rank = 0;
  std::span<torch::Tensor> tensors;  // of all ranks, each (n) contiguous on its own device
  // Returns when every rank has called it. Work that any rank did before is then finished and visible to
  // work that follows. On GPUs the streams wait for each other; the host waits only until all ranks have
  // queued their work.
  std::function<void()> barrier;

  int world() const { return static_cast<int>(tensors.size()); }
  torch::Tensor& of(int other) const { return tensors[static_cast<size_t>(other)]; }
  torch::Tensor& own() const { return of(rank); }

  // Chunk `index` of rank `other`'s tensor: one of world() nearly equal parts. Some are empty if n < world().
  torch::Tensor chunk(int other, int index) const {
    const int64_t n = of(other).numel();
    const int64_t begin = n * index / world();
    return of(other).narrow(0, begin, n * (index + 1) / world() - begin);
  }
};

// Each leaves the sum in every rank's tensor. The caller calls barrier() before and after.
void allreduce_root(const LocalRound& round);
void allreduce_two_shot(const LocalRound& round);
void allreduce_ring(const LocalRound& round);

}  // namespace lockstep
