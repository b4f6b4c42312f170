// The replicas of one list of devices, summing: what `bench allreduce` measures.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>

namespace lockstep {

// Whatever is returned was agreed on by all ranks, so that the same program may run as several processes that
// each drive some of them.
class AllreduceRanks {
 public:
  AllreduceRanks(const std::vector<torch::Device>& devices, int threads,
                 const std::vector<Allreduce>& algorithms);

  int world_size() const { return communicators_.front()->world_size(); }

  // Gives every rank a tensor of (count) floats, zeros.
  void set_count(int64_t count);

  // Elements, of all ranks together, that are not the sum: of inputs that differ per rank and element, small
  // whole numbers, so that the sum is exact in any order. algorithm: which of the constructor's.
  int64_t wrong(size_t algorithm);

  // Seconds of one sum, the slowest rank's: the median of so many, each waited for (on GPUs: their mean,
  // queued one behind the other).
  double seconds(size_t algorithm, int iterations);

  // Seconds in which every rank at once copies what a rank must at least receive and send on, 2 (n-1)/n of
  // the tensor, from its neighbour's memory into its own.
  double copy_seconds();

 private:
  torch::Tensor& own(int local) { return tensors_[static_cast<size_t>(local)]; }

  ReplicaWorkers workers_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // one an algorithm
  // One a local rank: (count) floats.
  std::vector<torch::Tensor> tensors_;
  std::vector<torch::Tensor> copies_;
};

}  // namespace lockstep
