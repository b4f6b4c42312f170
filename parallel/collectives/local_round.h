// One collective, as the communication thread of one replica sees it.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/call.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/support/element_range.h>

namespace lockstep {

class Channel;
struct ProcessExchange;

// Every local replica runs the same algorithm at the same time, in its own thread, and may read and write
// every local replica's tensor. Only barrier() orders these accesses.
struct LocalRound {
  int local = 0;                     // the replica whose thread this is
  Call call = {};                    // the same of all replicas
  std::span<torch::Tensor> tensors;  // of all local replicas, each (n) contiguous on its own device
  // Returns when every local replica has called it. Work that any of them did before is then finished and
  // visible to work that follows. On GPUs the streams wait for each other; the host waits only until all
  // replicas have queued their work.
  std::function<void()> barrier;
  ProcessExchange* exchange = nullptr;  // the way to the other processes; null in one process

  // A channel to the other processes, for this call. 0: the one that copies take.
  Channel& channel(int index = 0) const;

  int size() const { return static_cast<int>(tensors.size()); }
  torch::Tensor& of(int other) const { return tensors[static_cast<size_t>(other)]; }
  torch::Tensor& own() const { return of(local); }

  torch::Tensor elements(int other, const ElementRange& range) const {
    return of(other).slice(0, range.begin, range.end);
  }
  // The elements of chunk `index`, where `count` nearly equal ones are cut. Some are empty if n < count.
  ElementRange range_of_chunk(int index, int count) const {
    const int64_t n = own().numel();
    return {n * index / count, n * (index + 1) / count};
  }
  // That chunk of replica `other`'s tensor.
  torch::Tensor chunk(int other, int index, int count) const {
    return elements(other, range_of_chunk(index, count));
  }
  // The same chunk of every local replica's tensor.
  std::vector<torch::Tensor> chunks(int index, int count) const {
    std::vector<torch::Tensor> found;
    for (int other = 0; other < size(); ++other) found.push_back(chunk(other, index, count));
    return found;
  }
};

// Sums these elements over the local replicas, in the order of their ranks, into this replica's tensor.
void sum_locally(const LocalRound& round, const ElementRange& range);

// Leaves the sum over all processes in every local replica's tensor. The caller calls barrier() before and
// after. The algorithms for one process: allreduce/local_algorithms.h.
void allreduce_gloo(const LocalRound& round);

// allreduce_gloo for tensors of float or double that travel as `sent` and are added in the order of
// processes.
void allreduce_in_order(const LocalRound& round, torch::ScalarType sent);

}  // namespace lockstep
