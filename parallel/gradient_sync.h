// Sums one replica's gradients over all replicas, for any LibTorch module in any training loop, as PyTorch's
// DistributedDataParallel does.
//
//   GradientSync sync(communicator->endpoint(local));  // this process's replica `local`
//   sync.attach(*net);                 // gives all replicas rank 0's weights
//   for (...) {
//     optimizer.zero_grad();
//     (loss_sum / rows_of_all_replicas).backward();
//     sync.wait();                     // every .grad is now the sum over all replicas
//     optimizer.step();
//   }
//
// Gradients are summed, not averaged. Is your loss a mean over the replica's rows? Multiply it by those rows
// divided by the rows of all replicas.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradients/bucket_hook.h>
#include <lockstep/support/choices.h>
#include <lockstep/support/types.h>

namespace lockstep {

class AttachedModule;
class BucketParts;
class GradientRooms;
class ReadyBuckets;
struct FlatTensors;

enum class SyncMode {
  kParameterwise,  // after backward, one parameter after the other, as in the chapter: the reference
  kBucketed,       // after backward, in buckets
  kOverlapped,     // in buckets, each as soon as backward has filled it
};

inline constexpr Choice<SyncMode> kSyncModeNames[] = {{"parameterwise", SyncMode::kParameterwise},
                                                      {"bucketed", SyncMode::kBucketed},
                                                      {"overlapped", SyncMode::kOverlapped}};

// The behaviour of wait() when backward has not reached a trained parameter of this replica.
enum class UnusedParameters {
  kError,  // throws: it would be a mistake
  // Takes its gradient as zeros. So all replicas get the sum over those that have reached the parameter, and
  // zeros if none has. Zeros are a gradient: weight decay and momentum still move the parameter, where
  // Python's find_unused_parameters leaves one alone that no replica has reached. In overlapped mode the
  // bucket of an unreached parameter, and those behind it, wait for wait().
  kZero,
};

// The state that replicas share out, each keeping a part of every bucket instead of all of it (ZeRO:
// S. Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020).
// The trained weights have the same bits in all three ways.
enum class Shard {
  kNone,       // nothing
  kOptimizer,  // the optimizer's state (stage 1)
  kGradients,  // and the gradients (stage 2)
};

inline constexpr Choice<Shard> kShardNames[] = {
    {"none", Shard::kNone}, {"optimizer", Shard::kOptimizer}, {"gradients", Shard::kGradients}};

// The same on all replicas.
struct GradientSyncOptions {
  SyncMode mode = SyncMode::kOverlapped;
  // A bucket's bound (1 MB for the first and the last); a larger tensor has a bucket of its own.
  int64_t bucket_bytes = 25 << 20;
  UnusedParameters unused = UnusedParameters::kError;
  BucketHook hook = nullptr;  // sums each bucket; empty: Endpoint::allreduce_gradients()
  // Not kNone: wait() leaves of each sum the part that this rank owns, by Endpoint::reduce_scatter(). Only
  // Trainer's optimizers know these parts: it sets this from TrainerOptions::shard. Not with a hook. With
  // kGradients a parameter has a .grad only until its bucket takes it, and with NoSync until the last
  // backward pass of a step.
  Shard shard = Shard::kNone;
};

// Elements of the largest bucket of gradients of these sizes, the gaps behind them included: as many travel
// at the same time. numels: of the trained parameters, in the order of registration; a complex element counts
// as two.
int64_t largest_bucket(std::span<const int64_t> numels, int64_t element_size,
                       const GradientSyncOptions& options);

// The same of two buckets of which one follows the other, or of the only one: with Shard::kGradients one is
// summed while backward fills the next one, and both have memory.
int64_t largest_neighbours(std::span<const int64_t> numels, int64_t element_size,
                           const GradientSyncOptions& options);

// Not thread-safe. Call it in the replica's thread. All replicas make the same calls: attach, backward, wait.
//
// The gradients of all trained parameters lie in one flat buffer of real numbers, where a complex element is
// two. Each .grad is a view of it; wait() restores the view where zero_grad() has dropped it. A hook on each
// parameter notes that its gradient is complete. In overlapped mode the hook also posts the bucket's
// allreduce. Buckets are posted in a fixed order, so that all replicas post the same collectives. An
// undefined gradient counts as zeros.
class GradientSync {
 public:
  // Both outlive it; trace may be null.
  explicit GradientSync(Endpoint& endpoint, GradientSyncOptions options = {}, Trace* trace = nullptr);
  ~GradientSync();  // removes its hooks from the parameters; their gradients stay as they are
  GradientSync(const GradientSync&) = delete;
  GradientSync& operator=(const GradientSync&) = delete;

  // Gives the module rank 0's parameters and buffers, and zero gradients. The module must be on the
  // endpoint's device, in its final memory format, and alive at every later call. A tensor that is registered
  // under several names (tied weights) is one parameter, with its first name. Throws UsageError when no
  // parameter requires a gradient, when some differ in dtype (complex numbers of one dtype beside real ones
  // are allowed) or device, when one has a post-accumulate hook already, as require_strided() does; and on
  // all ranks when modules or options differ between them (of hooks: whether there is one). Also throws the
  // error that ended a collective.
  //
  // Call it once, and again whenever requires_grad of a parameter has changed: on all ranks, with the same
  // module, after wait() and before the next backward pass: gradients of a no_sync() that have not been
  // summed are refused unless they are zero. Then the ranks compare their modules again, the parameters and
  // buffers keep their values, and all gradients are zero; a parameter that is now frozen has none, so that
  // torch's optimizers leave it alone.
  void attach(torch::nn::Module& module);

  // Call it after backward, also on a replica that had nothing to call backward on. Returns when the
  // gradients are summed (on a GPU: the current stream waits for that). From backward on until then they are
  // being summed: do not read, clip or change them. Call zero_grad() before the next backward pass: what is
  // left in a .grad would be summed over the ranks once more. Throws UsageError before attach(),
  // and with the names of the parameters that backward did not reach, unless their gradients are taken as
  // zeros; while a no_sync() is alive; when requires_grad of a parameter, or dtype, device or shape of a
  // trained one, is not as attach() saw it; when other parameters are registered in the module by now; for a
  // .grad that was dropped or replaced after backward; for a sparse gradient; the error that ended a
  // collective; and what the hook throws.
  void wait();

  // Posts all buckets and waits: for a replica that has no rows in this step, or whose gradients autograd's
  // hooks have not seen, as those of a replayed graph. It sums what each .grad holds; as for wait(), one that
  // zero_grad() has dropped is zeros. Throws as wait() does for a parameter that has changed.
  void allreduce_all();

  // Returns true if a backward pass outside a no_sync() has reached a parameter since attach() or the last
  // wait().
  bool begun() const;

  // Returns true if backward passes within a no_sync() have left gradients that are not zero and not summed
  // yet. Waits for a GPU if there were such passes.
  bool holds_unsummed() const;

  // Makes each .grad its view of flat_gradients() again, and leaves the numbers there as they are: what a
  // .grad of its own holds is dropped. Call it after zero_grad() when what follows reads or writes the flat
  // buffer itself: before allreduce_all() for a replayed graph, which has written there, and before a
  // backward pass within a no_sync() if you read flat_gradients() after it.
  void restore_views();

  // For Trainer, before a step's only backward pass: drops each .grad, so that autograd hands its tensors
  // over instead of adding them to zeros. They fill the flat buffer, and each .grad is its view again, when
  // their bucket is posted; within a no_sync() when take_gradients() is called. On a GPU one kernel fills a
  // bucket. A parameter whose grad_dtype is unset may have a gradient in bfloat16. The numbers are those of a
  // backward pass on zero gradients. Does nothing with Shard::kGradients on several ranks.
  void drop_gradients();
  void take_gradients();

  // While one lives, backward only adds to the gradients, and nothing is posted: for all but the last
  // micro-batch of a step. May be nested.
  class [[nodiscard]] NoSync {
   public:
    explicit NoSync(GradientSync& sync) : sync_(sync) { ++sync_.paused_; }
    ~NoSync() { --sync_.paused_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradientSync& sync_;
  };
  NoSync no_sync() { return NoSync(*this); }

  // Errors begin with it, such as "rank 0 (cpu): in step 3", instead of the rank alone.
  void set_place(std::string place) { place_ = std::move(place); }

  // (n): all gradients and the gaps between them. Throws UsageError with Shard::kGradients on several ranks,
  // which have no such buffer.
  torch::Tensor& flat_gradients();
  // The parts of that buffer which each rank owns; one rank has everything unless options.shard says more.
  const BucketParts& parts() const;
  // (n): this rank's part of a bucket, as wait() left it; of flat_gradients(), if there is that buffer.
  torch::Tensor own_gradients(size_t bucket) const;
  const Params& parameters() const;               // parameters that require a gradient
  const std::vector<std::string>& names() const;  // of these parameters

 private:
  class Hook;

  void require_attached(const char* call);
  void detach();
  void on_gradient(int param);
  bool has_view(size_t param) const;
  void require_views(const std::vector<int>& missing);
  void require_all(const std::vector<int>& missing);
  void post_ready_buckets();
  Work post(int bucket);
  Work post_room(size_t bucket);
  void wait_for(Work& work);
  void hold_gradients(const Params& params);
  void make_view(int param);
  void take(size_t first, size_t last);
  void post_and_wait();
  [[noreturn]] void fail(const std::string& what, const std::string& hint);

  Endpoint& endpoint_;
  const GradientSyncOptions options_;
  Trace* const trace_;
  std::string place_;
  std::unique_ptr<AttachedModule> module_;
  std::unique_ptr<FlatTensors> gradients_;  // undefined where there are rooms
  std::unique_ptr<GradientRooms> rooms_;    // with Shard::kGradients on several ranks
  std::vector<torch::Tensor> gaps_;  // of gradients_, if there is a bucket hook, which may have written there
  // Autograd's accumulator nodes. A node belongs to the stream on which it was made. Keeping them keeps them
  // on the replica's stream, which capturing a graph needs.
  struct Nodes;
  std::unique_ptr<Nodes> nodes_;
  std::unique_ptr<ReadyBuckets> buckets_;  // null before attach()
  std::unique_ptr<BucketParts> parts_;
  std::vector<Work> works_;  // posted since the last wait()
  int paused_ = 0;           // NoSyncs that are alive
  bool unsummed_ = false;    // backward has added gradients within a NoSync since the last wait()
  bool dropped_ = false;     // each .grad is a tensor of its own until it is taken
};

// A collective: gives all ranks the parameters and buffers of rank `root`. Call it in each replica's thread,
// not between a backward pass and GradientSync::wait(). Returns when they are there (on a GPU: the current
// stream waits for that). Modules must be on the endpoints' devices. Throws UsageError on all ranks if names,
// shapes, strides or dtypes differ, or which parameters are frozen; and the error that ended a collective. It
// compares them on the host, so it waits for a GPU.
void broadcast_module(torch::nn::Module& module, Endpoint& endpoint, int root = 0);

// The same for the buffers alone, such as the running averages of batch norms. While it trains, each replica
// has its own averages: GradientSync broadcasts no buffers after attach(). DistributedDataParallel does so
// before each forward pass, unless broadcast_buffers is false.
void broadcast_buffers(torch::nn::Module& module, Endpoint& endpoint, int root = 0);

}  // namespace lockstep
