// The sums that `bench allreduce` measures, over the replicas of one list of devices.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/replica_workers.h>

namespace lockstep {

// All ranks agree on the returned values, so several processes can each run some of the ranks.
class AllreduceRanks {
 public:
  AllreduceRanks(const std::vector<torch::Device>& devices, int threads,
                 const std::vector<Allreduce>& algorithms);

  int world_size() const { return communicators_.front()->world_size(); }

  // Gives every rank a tensor of `count` zeros (float).
  void set_count(int64_t count);

  // Sums small whole numbers that differ by rank and element, so that the sum is exact in any order. Returns
  // the number of wrong elements of all ranks. algorithm: index into the constructor's list.
  int64_t wrong(size_t algorithm);

  // Seconds of one sum on the slowest rank: the median of `iterations` sums, each waited for. On GPUs: the
  // mean of `iterations` sums queued one after another.
  double seconds(size_t algorithm, int iterations);

  // Seconds in which all ranks at once copy 2 (n-1)/n of the tensor from the next rank's memory into their
  // own: the least that each rank must move in a sum.
  double copy_seconds();

 private:
  torch::Tensor& own(int local) { return tensors_[static_cast<size_t>(local)]; }

  ReplicaWorkers workers_;
  std::vector<std::unique_ptr<Communicator>> communicators_;  // one per algorithm
  // One per local rank: (count) floats.
  std::vector<torch::Tensor> tensors_;
  std::vector<torch::Tensor> copies_;
};

}  // namespace lockstep
