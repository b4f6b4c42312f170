// The sums that `bench allreduce` measures, over the replicas of one list of devices, or of several
// processes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/replica_workers.h>

namespace lockstep {

// With several processes, each runs the ranks on its own devices. All make the same calls in the same order
// and get the same values.
class AllreduceRanks {
 public:
  // group: null for this process alone. Throws as make_communicator() does.
  AllreduceRanks(const std::vector<torch::Device>& devices, int threads,
                 const std::vector<Allreduce>& algorithms,
                 const std::shared_ptr<ProcessGroup>& group = nullptr);

  int world_size() const { return communicators_.front()->world_size(); }

  // Gives every rank a tensor of `count` zeros (float).
  void set_count(int64_t count);

  // Sums small whole numbers that differ by rank and element, so that the sum is exact in any order. Returns
  // the number of wrong elements of all ranks. algorithm: index into the constructor's list.
  int64_t wrong_elements(size_t algorithm);

  // Seconds of one sum on the slowest rank: the median of `iterations` sums, each waited for. On GPUs: the
  // mean of `iterations` sums queued one after another.
  double seconds(size_t algorithm, int iterations);

  // Bytes that a process sends to others for one sum, of the process that sends most; a mean over a few sums.
  // nullopt where the kernel does not count them.
  std::optional<int64_t> bytes_on_wire(size_t algorithm);

  // Seconds in which all ranks at once copy 2 (n-1)/n of the tensor from the memory of the process's next
  // rank into their own, as a sum by two_shot or ring moves.
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
