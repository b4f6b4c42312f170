// One replica's gradients, summed over all replicas: what PyTorch's DistributedDataParallel does, for any
// LibTorch module in any training loop.
//
//   GradientSync sync(communicator->endpoint(rank));
//   sync.attach(*net);                 // all replicas now have rank 0's weights
//   for (...) {
//     optimizer.zero_grad();
//     (loss_sum / rows_of_all_replicas).backward();
//     sync.wait();                     // every .grad is now the sum over all replicas
//     optimizer.step();
//   }
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/support/choices.h>

namespace lockstep {

enum class SyncMode {
  kParameterwise,  // after backward, one parameter after the other: the chapter's loop, and the reference
  kBucketed,       // after backward, in buckets
  kOverlapped,     // in buckets, each as soon as backward has filled it
};

inline constexpr Choice<SyncMode> kSyncModeNames[] = {{"parameterwise", SyncMode::kParameterwise},
                                                      {"bucketed", SyncMode::kBucketed},
                                                      {"overlapped", SyncMode::kOverlapped}};

struct GradientSyncOptions {
  SyncMode mode = SyncMode::kOverlapped;
  int64_t bucket_bytes = 25 << 20;  // upper bound of a bucket; the first and the last have at most 1 MB
  Trace* trace = nullptr;           // outlives the sync
};

// Used from the replica's own thread. All replicas attach, run backward and wait in step.
//
// The gradients of all parameters that require one live in one flat buffer; each .grad is a view of it, and
// wait() makes it one again where zero_grad() has dropped it. A hook on each parameter notes that its
// gradient is complete; in overlapped mode it also posts the bucket's allreduce, strictly in the order of
// buckets, so that all replicas post the same collectives whatever the order of their gradients. A gradient
// that a layer leaves undefined is one of zeros.
class GradientSync {
 public:
  explicit GradientSync(Endpoint& endpoint, GradientSyncOptions options = {});
  ~GradientSync();  // takes its hooks off the parameters, whose gradients stay as they are
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Once. Gives the module rank 0's parameters and buffers, and zero gradients. The module is on the
  // endpoint's device, in the memory format it will keep. Throws UsageError when parameters differ in dtype
  // or device, and when one has a post-accumulate hook already.
  void attach(torch::nn::Module& module);

  // After backward: returns when the gradients are summed (on a GPU: the current stream waits for it). Throws
  // UsageError that names the parameters which backward did not reach, and what ended a collective.
  void wait();

  // wait() for gradients that are in the flat buffer without a backward pass that the hooks have seen: from a
  // graph that was replayed, or zeros of a replica that has no rows in this step.
  void reduce();

  // While off, backward only adds to the gradients: for all but the last of a step's micro-batches.
  void set_enabled(bool enabled) { enabled_ = enabled; }

  // (layout().size), all gradients and the gaps between them
  torch::Tensor& flat_gradients() { return gradients_.flat; }
  const FlatLayout& layout() const { return layout_; }
  const Params& parameters() const { return params_; }  // those that require a gradient

 private:
  class Hook;

  void on_gradient(int param);
  void post_ready_buckets();
  void make_view(int param);
  void wait_for_buckets();
  [[noreturn]] void fail(const std::string& what, const std::string& hint);

  Endpoint& endpoint_;
  const GradientSyncOptions options_;
  std::vector<std::string> names_;
  Params params_;
  FlatLayout layout_;
  FlatTensors gradients_;
  // Of each parameter, kept since a node belongs to the stream on which it was made: the replica's own, for
  // the whole run, as a graph's recording demands.
  struct Nodes;
  std::unique_ptr<Nodes> nodes_;
  std::optional<BucketProgress> progress_;
  std::vector<Work> works_;  // posted since the last wait()
  bool enabled_ = true;
};

// All ranks get rank `root`'s parameters and buffers. A collective: every rank calls it.
void broadcast_module(torch::nn::Module& module, Endpoint& endpoint, int root = 0);

}  // namespace lockstep
