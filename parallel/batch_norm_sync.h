// Lets a replica's batch normalisations take the statistics of the whole batch, as PyTorch's SyncBatchNorm
// does: any number of replicas then computes what one does. Trainer does it with BnPolicy::kSync. In an own
// loop:
//
//   const auto statistics = make_communicator({.devices = devices});  // beside that of the gradients
//   workers.run(*communicator, [&](int local, Endpoint& endpoint) {
//     GradientSync sync(endpoint);
//     sync.attach(*net);
//     const BatchNormSync norms(*net, statistics->endpoint(local));
//     ...  // every replica runs the same layers in every step, one without rows too, with 0 rows
//   });
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/batch_statistics.h>
#include <lockstep/support/types.h>

namespace lockstep {

class Trace;

// Returns true if the module has batch normalisations that take the statistics of the whole batch: lockstep's
// (models/batch_norm.h). Throws UsageError, which names the module and the remedy, if one of torch's own is
// among them. (It cannot see calls of torch's functions.)
bool has_whole_batch_norms(torch::nn::Module& module);

// Not thread-safe. Use it in the replica's thread, in which backward must run, too.
class BatchNormSync {
 public:
  // From now on, in training mode, the module's forward and backward passes are collectives of `statistics`.
  // That is an endpoint of a communicator of its own: its collectives would otherwise queue behind buckets of
  // gradients, in an order that differs between replicas. module, statistics and trace (may be null) outlive
  // it. Throws as has_whole_batch_norms().
  BatchNormSync(torch::nn::Module& module, Endpoint& statistics, Trace* trace = nullptr);
  ~BatchNormSync();  // from then on each replica normalises alone. No backward pass may be outstanding
  BatchNormSync(const BatchNormSync&) = delete;
  BatchNormSync& operator=(const BatchNormSync&) = delete;

 private:
  class Exchange : public StatisticsExchange {
   public:
    Exchange(Endpoint& endpoint, Trace* trace) : endpoint_(endpoint), trace_(trace) {}
    torch::Tensor gather(const torch::Tensor& own) override;

   private:
    Endpoint& endpoint_;
    Trace* const trace_;
  };

  Exchange exchange_;
  std::vector<WholeBatchLayer*> layers_;
};

}  // namespace lockstep
