// Which batch-norm statistics a set of replicas is evaluated and saved with.
//
// While training each replica normalises with the statistics of its own rows and keeps running averages of
// its own (as torch's DataParallel and DistributedDataParallel do). LibTorch's data_parallel loses them
// (pytorch/pytorch#21144).
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/choices.h>
#include <lockstep/support/types.h>

namespace lockstep {

enum class BnPolicy {
  kRoot,     // rank 0's
  kAverage,  // the mean over replicas, weighted by the rows that each has trained on
};

inline constexpr Choice<BnPolicy> kBnPolicyNames[] = {{"root", BnPolicy::kRoot},
                                                      {"average", BnPolicy::kAverage}};

// While it lives, the module's buffers are the policy's, the same on every replica; then each replica has its
// own again. Making one is a collective: every replica makes one, in its own thread. Floating-point buffers
// follow the policy, others (counters) are rank 0's.
class SharedBuffers {
 public:
  // rows: what this replica has trained on. Where no replica has any, all weigh the same.
  SharedBuffers(torch::nn::Module& module, Endpoint& endpoint, BnPolicy policy, int64_t rows);
  ~SharedBuffers();
  SharedBuffers(const SharedBuffers&) = delete;
  SharedBuffers& operator=(const SharedBuffers&) = delete;

 private:
  std::vector<torch::Tensor> buffers_;
  std::vector<torch::Tensor> own_;  // copies of what they held
};

}  // namespace lockstep
