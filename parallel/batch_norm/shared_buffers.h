// The batch-norm statistics with which replicas are evaluated and saved.
//
// In training each replica normalises with the statistics of its own rows and keeps its own running averages,
// as torch's DataParallel and DistributedDataParallel do; with kSync, with those of the whole batch, as
// torch's SyncBatchNorm. LibTorch's data_parallel loses the running averages (pytorch/pytorch#21144).
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/training/bn_policy.h>
#include <lockstep/support/types.h>

namespace lockstep {

// While it lives, the module's buffers are those of the policy, the same on every replica. Its destructor
// restores each replica's own. Its constructor is a collective: every replica calls it in its own thread.
// Floating-point buffers follow the policy; others (counters) are rank 0's.
class SharedBuffers {
 public:
  // rows: number of rows that this replica has trained on. If all have 0, all weigh the same.
  SharedBuffers(torch::nn::Module& module, Endpoint& endpoint, BnPolicy policy, int64_t rows);
  ~SharedBuffers();
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> own_;  // copies of what they held
};

}  // namespace lockstep
