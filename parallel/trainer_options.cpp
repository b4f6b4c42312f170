#include <lockstep/parallel/trainer_options.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <lockstep/parallel/collectives/named_options.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/parallel/training/graphs/step_graph.h>
#include <lockstep/parallel/training/option_values.h>
#include <lockstep/parallel/training/replica_options.h>
#include <lockstep/support/error.h>
#include <lockstep/support/shard_sizes.h>

namespace lockstep {
namespace {

ErrorText bn_sync() { return NamedOption{.key = "bn", .value = "sync", .words = "BnPolicy::kSync"}; }
ErrorText graph(const char* value, const char* words) {
  return NamedOption{.key = "cuda_graph", .value = value, .words = words};
}

bool is_default(const GradientSyncOptions& sync) {
  const GradientSyncOptions normal;
  return sync.mode == normal.mode && sync.bucket_bytes == normal.bucket_bytes &&
         sync.unused == normal.unused && !sync.hook;
}

struct Exclusion {
  bool both;
  ErrorText one, other;
  const char* why;
  ErrorText hint = "leave one of them out";
};

void check(std::span<const Exclusion> exclusions) {
  for (const auto& [both, one, other, why, hint] : exclusions) {
    refuse_if(both, one + " cannot be combined with " + other + ": " + why, hint);
  }
}

ErrorText leave_out(const char* key) { return "leave " + named(key) + " out"; }

// allreduce may be set: it picks what carries the parts between replicas, NCCL or host memory, not how they
// are added.
void check_invariant(const TrainerOptions& options) {
  if (!options.replica.invariant) return;
  const auto invariant = named("invariant");
  const Exclusion exclusions[] = {
      {!options.split.empty(), invariant, named("split"), "it cuts every batch into eight equal parts",
       leave_out("split")},
      {options.auto_split, invariant, named("auto_split"), "it cuts every batch into eight equal parts",
       leave_out("auto_split")},
      {options.accumulate > 1, invariant, named("accumulate"),
       "it computes every batch in eight parts anyway", leave_out("accumulate")},
      {!is_default(options.replica.sync), invariant, named("sync"),
       "it sums gradients in an order of its own", leave_out("sync")},
      {options.compress != Compress::kNone, invariant, named("compress"),
       "it gives the same bits for any number of processes"},
      {options.bn == BnPolicy::kSync, invariant, bn_sync(), "it normalises each eighth of a batch alone",
       "leave one of them out: with " + bn_sync() + " replicas agree to rounding"},
      {options.bn != BnPolicy::kRoot, invariant, named("bn"),
       "all replicas have the same batch-norm statistics", leave_out("bn")},
  };
  check(exclusions);
}

void check_auto_split(const TrainerOptions& options) {
  if (!options.auto_split) return;
  const ErrorText name_shares = "name the shares: " + NamedOption{"split", "3:1", "split = {3, 1}"};
  const Exclusion exclusions[] = {
      {!options.split.empty(), named("auto_split"), named("split"), "it finds other shares by timing"},
      {options.bn == BnPolicy::kSync, named("auto_split"), bn_sync(),
       "no replica takes less time where each waits for all", name_shares},
      {options.shard == Shard::kGradients, named("auto_split"),
       NamedOption{"shard", "gradients", "shard gradients"},
       "during backward each replica waits for the sums of all", name_shares},
  };
  check(exclusions);
}

void check_compress(const TrainerOptions& options) {
  if (options.compress == Compress::kNone) return;
  const NamedOption fp64{"precision", "fp64", "Precision::kFp64"};
  const NamedOption hook{"hook", "", "sync.hook"};
  const auto compress = named("compress");
  const Exclusion exclusions[] = {
      {options.replica.precision == Precision::kFp64, compress, fp64, "sums in fp64 are not rounded"},
      {options.allreduce == Allreduce::kNccl, compress, named_allreduce(Allreduce::kNccl),
       "NCCL sends gradients as they are",
       "use " + named_allreduce(Allreduce::kGloo) + ", or leave one of them out"},
      {static_cast<bool>(options.replica.sync.hook), compress, hook, "the hook decides what travels"},
  };
  check(exclusions);
}

void check_fp16(const TrainerOptions& options) {
  const auto& replica = options.replica;
  if (replica.precision != Precision::kFp16) return;
  const NamedOption fp16{"precision", "fp16", "Precision::kFp16"};
  const char* why = "after each step the host reads whether it is skipped";
  const Exclusion exclusions[] = {
      {replica.cuda_graph == CudaGraph::kOn, fp16, graph("on", "CudaGraph::kOn"), why,
       "use " + graph("auto", "CudaGraph::kAuto")},
      {options.in_flight == 2, fp16, named("in_flight"), why, leave_out("in_flight")},
  };
  check(exclusions);
}

void check_cuda_graph(const TrainerOptions& options) {
  const auto& replica = options.replica;
  if (replica.cuda_graph != CudaGraph::kOn) return;
  const auto on = graph("on", "CudaGraph::kOn");
  const Exclusion exclusions[] = {
      {replica.trace != nullptr, on, named("trace"), "a replayed step cannot be timed in parts"},
      {replica.invariant, on, named("invariant"), "its steps are computed in parts and not captured"},
      {options.auto_split, on, named("auto_split"), "captured steps need fixed shares"},
      {options.bn == BnPolicy::kSync, on, bn_sync(), "replicas wait for each other within a step"},
      {replica.wait_for_device, on, named("wait_for_device"), "it waits within each step"},
      {static_cast<bool>(replica.optimizer.factory), on, NamedOption{"factory", "", "optimizer.factory"},
       "torch's optimizers count steps on the host"},
  };
  check(exclusions);
}

void check_schedule(const LrSchedule& lr) {
  const NamedOption one_cycle{"schedule", "onecycle", "Schedule::kOneCycle"};
  const auto function = NamedOption{"lr_function", "", "lr.function"};
  const Exclusion exclusions[] = {
      {lr.schedule == Schedule::kOneCycle && lr.warmup_steps != 0, one_cycle, named("warmup_steps"),
       "it rises by itself", leave_out("warmup_steps")},
      {lr.function && lr.schedule != Schedule::kConstant, function, named("schedule"),
       "it gives the rate of every step"},
      {lr.function && lr.warmup_steps != 0, function, named("warmup_steps"),
       "it gives the rate of every step", leave_out("warmup_steps")},
  };
  check(exclusions);
}

// Trainer sets these by options of its own: another value would have no effect.
void check_set_by_trainer(const ReplicaOptions& replica) {
  refuse_if(replica.ema != 0, fmt::format("replica.ema is {}", replica.ema), "set TrainerOptions::ema");
  refuse_if(replica.in_flight != 1, fmt::format("replica.in_flight is {}", replica.in_flight),
            "set TrainerOptions::in_flight");
  refuse_if(replica.sync.shard != Shard::kNone,
            fmt::format("replica.sync.shard is {}", name_of(kShardNames, replica.sync.shard)),
            "set TrainerOptions::shard");
}

void check_shard(const TrainerOptions& options) {
  if (options.shard == Shard::kNone) return;
  const NamedOption shard{"shard", std::string(name_of(kShardNames, options.shard)),
                          fmt::format("shard {}", name_of(kShardNames, options.shard))};
  const NamedOption optimizer{"shard", "optimizer", "Shard::kOptimizer"};
  const auto& replica = options.replica;
  const auto order = "each replica sums its part of every bucket, in the order of ranks";
  const auto other = "use " + named_allreduce(Allreduce::kAuto) + ", or leave " + shard + " out";
  const auto whole = "use " + optimizer + ", or leave " + shard + " out";
  const auto on = graph("on", "CudaGraph::kOn"), automatic = graph("auto", "CudaGraph::kAuto");
  const Exclusion exclusions[] = {
      {options.allreduce == Allreduce::kRoot, shard, named_allreduce(Allreduce::kRoot), order, other},
      {options.allreduce == Allreduce::kRing, shard, named_allreduce(Allreduce::kRing), order, other},
      {options.compress != Compress::kNone, shard, named("compress"), "parts of sums travel as they are",
       "use " + named_compress(Compress::kNone) + ", or leave " + shard + " out"},
      {static_cast<bool>(replica.sync.hook), shard, NamedOption{"hook", "", "sync.hook"},
       "a hook sums whole buckets"},
      {static_cast<bool>(replica.optimizer.factory), shard, NamedOption{"factory", "", "optimizer.factory"},
       "torch's optimizers update whole parameters"},
      {options.shard == Shard::kGradients && replica.sync.mode != SyncMode::kOverlapped, shard,
       NamedOption{"sync", std::string(name_of(kSyncModeNames, replica.sync.mode)), "sync.mode"},
       "all gradients would be kept until the backward pass has ended", whole},
      {options.shard == Shard::kGradients && options.accumulate > 1, shard, named("accumulate"),
       "the gradients of micro-batches are added up whole", whole},
      {options.shard == Shard::kGradients && replica.invariant, shard, named("invariant"),
       "every replica adds up whole gradients",
       "use " + optimizer + ", on 1, 2, 4 or 8 replicas, or leave " + named("invariant") + " out"},
      {options.shard == Shard::kGradients && replica.cuda_graph == CudaGraph::kOn, shard, on,
       "gradients get and lose memory while the backward pass goes on", "use " + automatic},
      {replica.clip_norm > 0 && replica.cuda_graph == CudaGraph::kOn, shard, on,
       "the norm by which gradients are clipped is summed between replicas within the update",
       "use " + automatic},
  };
  check(exclusions);
}

void check_optimizer(const OptimizerOptions& optimizer) {
  const NamedOption adam{"optimizer", "adam", "OptimizerKind::kAdam"};
  const NamedOption adamw{"optimizer", "adamw", "OptimizerKind::kAdamW"};
  const NamedOption sgd{"optimizer", "sgd", "OptimizerKind::kSgd"};
  const NamedOption some_momentum{"momentum", "0.9", "momentum = 0.9"};
  const bool is_sgd = optimizer.kind == OptimizerKind::kSgd;
  const auto& other = optimizer.kind == OptimizerKind::kAdam ? adam : adamw;
  const NamedOption factory{"factory", "", "optimizer.factory"};
  const bool made = static_cast<bool>(optimizer.factory);
  const char* why = "the optimizer that it makes has its own";
  const auto hint = "leave it out, or use " + sgd;
  const Exclusion exclusions[] = {
      {!is_sgd && optimizer.momentum != 0, other, named("momentum"), "it is a setting of sgd", hint},
      {!is_sgd && optimizer.nesterov, other, named("nesterov"), "it is a setting of sgd", hint},
      {made && !is_sgd, factory, other, "it makes the optimizer"},
      {made && optimizer.momentum != 0, factory, named("momentum"), why},
      {made && optimizer.weight_decay != 0, factory, named("weight_decay"), why},
      {made && optimizer.group, factory, named("group"), "the optimizer that it makes has its own groups"},
  };
  check(exclusions);
  refuse_if(optimizer.nesterov && optimizer.momentum == 0,
            named("nesterov") + " is a form of momentum, but " + named("momentum") + " is 0",
            "set " + some_momentum + ", for example");
}

// The limits that depend on the replicas of all processes.
void check_world(const TrainerOptions& options, int replicas) {
  if (options.replica.invariant) check_invariant_world(replicas);
  if (options.split.empty()) return;
  try {
    shard_sizes(0, replicas, options.split);
  } catch (const UsageError& error) {
    const NamedOption split{"split", fmt::format("{}", fmt::join(options.split, ":")), "split"};
    throw UsageError(split + " cannot be used: " + error.message_text(), error.hint_text());
  }
}

void check_devices(const TrainerOptions& options) {
  const auto& devices = options.devices;
  refuse_if(devices.empty(), "there is no device to train on", "list one device per replica");
  check_precision(options.replica.precision, devices);
  const bool no_graphs = std::none_of(devices.begin(), devices.end(), StepGraph::available);
  refuse_if(options.replica.cuda_graph == CudaGraph::kOn && no_graphs,
            graph("on", "CudaGraph::kOn") + " needs a GPU, but the devices are " + to_string(devices),
            "use " + graph("auto", "CudaGraph::kAuto"));
}

}  // namespace

void TrainerOptions::check_combination() const {
  check_values(*this);
  check_invariant(*this);
  check_compress(*this);
  check_cuda_graph(*this);
  check_fp16(*this);
  check_auto_split(*this);
  check_schedule(lr);
  check_optimizer(replica.optimizer);
  check_set_by_trainer(replica);
  check_shard(*this);
}

void TrainerOptions::validate(std::optional<int> world_size) const {
  const auto local = static_cast<int>(devices.size());
  const bool alone =
      world_size ? *world_size == local : !process_group || process_group->world().processes == 1;
  check_combination();
  check_devices(*this);
  if (alone || world_size) check_world(*this, world_size.value_or(local));
  if (alone && compress != Compress::kNone) refuse_compress_alone(compress);
}

int steps_in_flight(const TrainerOptions& options) {
  const bool queues = any_gpu(options.devices) && options.replica.precision != Precision::kFp16;
  return options.in_flight.value_or(queues ? 2 : 1);
}

int replica_threads(const TrainerOptions& options) {
  const auto replicas = static_cast<int>(options.devices.size());
  return options.threads.value_or(options.replica.invariant ? 1 : default_threads(replicas));
}

}  // namespace lockstep
