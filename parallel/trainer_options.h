// The options of a Trainer, and which of them exclude each other.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/training/bn_policy.h>
#include <lockstep/parallel/training/replica_options.h>

namespace lockstep {

// Trainer refuses processes whose options differ. Only devices may, and what concerns one process alone:
// threads, in_flight, and of `replica` cuda_graph, wait_for_device, notice and trace. It sees only whether
// there is a hook, or an lr.function: all processes must give one that keeps what gradients/bucket_hook.h
// says, and the same function.
struct TrainerOptions {
  std::vector<torch::Device> devices;                     // of this process, one replica each
  std::shared_ptr<ProcessGroup> process_group = nullptr;  // null: this process alone
  // Intra-op threads of each replica. Empty: 1 with replica.invariant, whose bits depend on it, else the
  // cores of this process divided by its replicas.
  std::optional<int> threads;
  Allreduce allreduce = Allreduce::kAuto;
  Compress compress = Compress::kNone;  // of the gradients, between processes
  ReplicaOptions replica;
  // Each replica on a CPU draws numbers of its own in every step, as dropout does: of this seed, the step and
  // its rank, with replica.invariant of the micro-shard (replica_random.h). Initial weights are drawn before.
  uint64_t seed = 0;
  LrSchedule lr;  // Trainer::set_lr() may set another rate between steps
  // Above 0: Trainer also keeps an exponential moving average of the trained parameters with this decay, such
  // as .999, and evaluates with it. Its numbers are those of torch.optim.swa_utils.AveragedModel with
  // get_ema_multi_avg_fn(decay), updated after each step but those that Precision::kFp16 skips: the first
  // one gives the parameters themselves.
  // Buffers are not averaged, as with use_buffers=False: batch norms are evaluated with the statistics of
  // training. A parameter that is frozen is evaluated as it is; when it is trained again, its average begins
  // with its value. Below 1; 0: none. Costs the memory of the parameters once more, and a pass over them per
  // step.
  double ema = 0;
  // The state that replicas share out instead of each having all of it. With kOptimizer each keeps the
  // optimizer's state, and the average of `ema`, of a part of every bucket of gradients: it gets the part's
  // sums, updates the part and gives it to the others while it updates the next one. The weights have the
  // same bits as without it (on GPUs with clip_norm to rounding), and a step moves as many bytes. With
  // kGradients each also keeps of the gradients that part, and beside it the memory of the bucket that
  // backward fills and of the one that is summed: bucket_bytes is the bound.
  Shard shard = Shard::kNone;
  // Micro-batches per shard and step; their gradients are summed over the replicas once. With BnPolicy::kSync
  // the batch is cut into micro-batches before shards, and each is normalised over all replicas.
  int accumulate = 1;
  // Steps in flight before step() waits for the oldest one. 1: step() returns when its step is done. 2: it
  // returns when the step before is done, so that a GPU does not idle between steps. Empty: 2 if there is a
  // GPU and the precision is not kFp16, else 1.
  std::optional<int> in_flight;
  std::vector<double> split;  // shares of the batch, one per replica of the world; empty: even
  bool auto_split = false;    // finds the shares by timing the first steps
  BnPolicy bn = BnPolicy::kRoot;
  int64_t check_sync = 0;  // step() compares the replicas after every so many steps; 0: never

  // Throws UsageError for a value out of range (threads: above OMP_THREAD_LIMIT, too), and for options that
  // exclude each other whatever the devices. Error::options() names them.
  // - auto_split with a split;
  // - replica.invariant with split, auto_split, accumulate, compress, a replica.sync or bn other than the
  //   default (it takes unreached parameters' gradients as zeros, and sums without a hook);
  // - BnPolicy::kSync with auto_split, whose times it makes alike;
  // - CudaGraph::kOn with a trace, replica.invariant, auto_split or replica.wait_for_device, which need the
  //   phases of each step, or with BnPolicy::kSync;
  // - compress with Allreduce::kNccl, with Precision::kFp64, or with replica.sync.hook, which decides what
  //   travels;
  // - Precision::kFp16 with CudaGraph::kOn or in_flight 2: the host skips steps, or does not;
  // - shard with Allreduce::kRoot or kRing, compress, replica.sync.hook, an optimizer factory, or
  //   CudaGraph::kOn and replica.clip_norm; Shard::kGradients with CudaGraph::kOn, and with accumulate or
  //   replica.invariant, which add up whole gradients; replica.sync.shard, which is set by `shard`;
  // - nesterov without momentum, and either of them with Adam or AdamW;
  // - an optimizer factory with another kind, momentum, weight_decay or group, or with CudaGraph::kOn;
  // - Schedule::kOneCycle with warmup_steps, and lr.function with either of them or any other schedule.
  void check_combination() const;

  // Throws UsageError as check_combination() does, and for what the devices or the world do not allow:
  // - a split with another number of shares than the world has replicas;
  // - replica.invariant with a number of replicas that does not divide 8;
  // - compress in one process;
  // - CudaGraph::kOn or Precision::kTf32 without a GPU in this process.
  // world_size: replicas of all processes. Empty: the number of devices if this process is alone; otherwise
  // what depends on it is not checked. Trainer's constructor calls it twice: before it joins the other
  // processes, and when it knows the world.
  void validate(std::optional<int> world_size = std::nullopt) const;
};

// The values of options.in_flight and options.threads, or their defaults when they are empty. The cores are
// those of the calling thread.
int steps_in_flight(const TrainerOptions& options);
int replica_threads(const TrainerOptions& options);

}  // namespace lockstep
