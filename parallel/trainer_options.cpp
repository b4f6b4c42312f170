#include <lockstep/parallel/trainer_options.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/threads/cpu_cores.h>
#include <lockstep/parallel/threads/openmp_threads.h>
#include <lockstep/parallel/training/graphs/step_graph.h>
#include <lockstep/parallel/training/replica_options.h>
#include <lockstep/support/error.h>
#include <lockstep/support/shard_sizes.h>

namespace lockstep {
namespace {

void refuse_if(bool wrong, const std::string& what, const std::string& hint) {
  if (wrong) throw UsageError(what, hint);
}

bool is_default(const GradientSyncOptions& sync) {
  const GradientSyncOptions normal;
  return sync.mode == normal.mode && sync.bucket_bytes == normal.bucket_bytes &&
         sync.unused == normal.unused && !sync.hook;
}

void check_ranges(const TrainerOptions& options) {
  const auto at_least_1 = [](const char* name, int64_t value) {
    refuse_if(value < 1, fmt::format("{} is {}", name, value), "it must be at least 1");
  };
  refuse_if(options.devices.empty(), "there is no device to train on", "list one device per replica");
  if (options.threads) check_replica_threads(*options.threads);
  at_least_1("accumulate", options.accumulate);
  at_least_1("bucket_bytes", options.replica.sync.bucket_bytes);
  const int in_flight = steps_in_flight(options);
  refuse_if(in_flight < 1 || in_flight > 2, fmt::format("in_flight is {}", in_flight), "it must be 1 or 2");
  refuse_if(options.check_sync < 0, fmt::format("check_sync is {}", options.check_sync),
            "it must be a number of steps, or 0 for never");
  const auto not_negative = [](const char* name, double value) {
    refuse_if(!(value >= 0) || std::isinf(value), fmt::format("{} is {}", name, value),
              "it must be a number from 0");
  };
  not_negative("lr", options.lr.lr);
  not_negative("momentum", options.replica.optimizer.momentum);
  not_negative("weight_decay", options.replica.optimizer.weight_decay);
  const double clip_norm = options.replica.clip_norm;
  refuse_if(!(clip_norm >= 0), fmt::format("clip_norm is {}", clip_norm),
            "it must be a positive number, or 0 for no bound");
}

using WorldSize = std::optional<int>;  // empty while it is not known

void check_split(const TrainerOptions& options, WorldSize world) {
  if (options.split.empty()) return;
  refuse_if(options.auto_split, "split gives the shares, but auto_split finds others by timing",
            "set one of them");
  if (!world) return;
  try {
    shard_sizes(0, *world, options.split);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("split cannot be used: {}", error.message()), error.hint());
  }
}

// `allreduce` may be set: it picks what carries the parts between replicas, NCCL or host memory, not how they
// are added.
void check_invariant(const TrainerOptions& options, WorldSize world) {
  if (!options.replica.invariant) return;
  if (world) check_invariant_world(*world);
  refuse_if(!options.split.empty() || options.auto_split,
            "invariant cuts every batch into eight equal parts, but split and auto_split choose other shares",
            "leave split empty and auto_split false");
  refuse_if(options.accumulate > 1,
            "invariant computes every batch in eight parts, but accumulate asks for other micro-batches",
            "leave accumulate at 1");
  refuse_if(!is_default(options.replica.sync),
            "invariant adds whole gradients in a fixed tree, so sync has no effect",
            "leave sync at its default");
  refuse_if(options.bn == BnPolicy::kSync,
            "invariant normalises each eighth of a batch alone, but BnPolicy::kSync the whole batch",
            "choose one of them: with BnPolicy::kSync replicas agree to rounding");
  refuse_if(options.bn != BnPolicy::kRoot,
            "invariant gives all replicas the same batch-norm statistics, so bn has no effect",
            "leave bn at BnPolicy::kRoot");
}

void check_auto_split(const TrainerOptions& options) {
  refuse_if(
      options.auto_split && options.bn == BnPolicy::kSync,
      "auto_split compares the times of the replicas, but BnPolicy::kSync lets each one wait for the slowest",
      "give the shares with split");
}

void check_cuda_graph(const TrainerOptions& options) {
  const auto& replica = options.replica;
  const auto& devices = options.devices;
  if (replica.cuda_graph != CudaGraph::kOn) return;
  const std::string hint = "use CudaGraph::kAuto";
  refuse_if(replica.trace, "CudaGraph::kOn replays whole steps, but a trace needs the phases of each", hint);
  refuse_if(replica.invariant,
            "CudaGraph::kOn replays whole steps, but invariant handles the parts of each one by one", hint);
  refuse_if(options.auto_split,
            "CudaGraph::kOn replays steps with fixed shares, but auto_split changes the shares", hint);
  refuse_if(options.bn == BnPolicy::kSync,
            "CudaGraph::kOn replays whole passes, but BnPolicy::kSync waits for other replicas within each",
            hint);
  refuse_if(replica.wait_for_device,
            "CudaGraph::kOn replays whole steps, but wait_for_device waits within each", hint);
  refuse_if(std::none_of(devices.begin(), devices.end(), StepGraph::available),
            fmt::format("CudaGraph::kOn needs a GPU, but the devices are {}", to_string(devices)), hint);
}

void check_compress(const TrainerOptions& options) {
  if (options.compress == Compress::kNone) return;
  const auto refuse = [&](bool wrong, const char* why) {
    refuse_if(wrong, fmt::format("compress is {}, {}", name_of(kCompressNames, options.compress), why),
              "use Compress::kNone");
  };
  refuse(!options.process_group || options.process_group->world().processes == 1,
         "but this process is alone: it sends nothing");
  refuse(options.allreduce == Allreduce::kNccl, "but NCCL sends gradients as they are");
  refuse(options.replica.precision == Precision::kFp64, "but the gradients are fp64, which is not rounded");
  refuse(static_cast<bool>(options.replica.sync.hook), "but sync.hook decides what travels");
  refuse(options.replica.invariant, "but invariant gives the same bits for any number of processes");
}

void check_optimizer(const OptimizerOptions& optimizer) {
  if (optimizer.kind == OptimizerKind::kAdamW) {
    refuse_if(optimizer.momentum != 0 || optimizer.nesterov,
              "momentum and nesterov are options of SGD, but the optimizer is AdamW",
              "leave them out, or use OptimizerKind::kSgd");
  } else {
    refuse_if(optimizer.nesterov && optimizer.momentum == 0,
              "nesterov is a form of momentum, but momentum is 0", "set momentum, such as 0.9");
  }
}

}  // namespace

void TrainerOptions::validate(std::optional<int> world_size) const {
  if (!world_size && !process_group) world_size = static_cast<int>(devices.size());
  check_ranges(*this);
  check_split(*this, world_size);
  check_invariant(*this, world_size);
  check_auto_split(*this);
  check_cuda_graph(*this);
  check_compress(*this);
  check_optimizer(replica.optimizer);
  refuse_if(replica.precision == Precision::kTf32 && !any_gpu(devices),
            fmt::format("Precision::kTf32 needs a GPU, but the devices are {}", to_string(devices)),
            "use Precision::kFp32 or Precision::kBf16");
}

int steps_in_flight(const TrainerOptions& options) {
  return options.in_flight.value_or(any_gpu(options.devices) ? 2 : 1);
}

int replica_threads(const TrainerOptions& options) {
  const auto replicas = static_cast<int>(options.devices.size());
  return options.threads.value_or(options.replica.invariant ? 1 : default_threads(replicas));
}

}  // namespace lockstep
