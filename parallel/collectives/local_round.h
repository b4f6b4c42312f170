// One collective between the replicas of a process, as an algorithm sees it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>

namespace lockstep {

// Every rank runs the same algorithm at the same time, each in a thread of its own, and may read and write
// any rank's tensor: sync() is what keeps them apart.
struct LocalRound {
  int rank = 0;
  std::span<torch::Tensor> tensors;  // of all ranks, each (n) contiguous on its own device
  // What any rank did before it is done, and visible to all, after it: one barrier. On GPUs streams wait for
  // each other and the host only until all have queued their part.
  std::function<void()> sync;

  int world() const { return static_cast<int>(tensors.size()); }
  torch::Tensor& of(int other) const { return tensors[static_cast<size_t>(other)]; }
  torch::Tensor& own() const { return of(rank); }

  // Part `chunk` of world() nearly equal parts of a rank's tensor; some are empty where n < world().
  torch::Tensor chunk(int other, int index) const {
    const int64_t n = of(other).numel();
    const int64_t begin = n * index / world();
    return of(other).narrow(0, begin, n * (index + 1) / world() - begin);
  }
};

// Each leaves the sum in every rank's tensor. All ranks have arrived when they start; the caller syncs once
// more when they return.
void allreduce_root(const LocalRound& round);
void allreduce_two_shot(const LocalRound& round);
void allreduce_ring(const LocalRound& round);

}  // namespace lockstep
