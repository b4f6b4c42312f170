// How gradients are computed and summed.
#include <CLI/CLI.hpp>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/app/train/settings/setting.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {
namespace {

constexpr int64_t kMaxMicroBatches = 1 << 16;
constexpr int64_t kMaxBucketMb = 1 << 20;

CLI::Option* add_precision(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.trainer.replica.precision, kPrecisionNames,
                    "Arithmetic of the layers");
}

CLI::Option* add_accumulate(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.accumulate,
                  "Micro-batches per step and replica; gradients are summed over the replicas once per step")
      ->check(positive_int(kMaxMicroBatches));
}

CLI::Option* add_bn(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(
      command, flag, flags.trainer.bn, kBnPolicyNames,
      "Batch-norm statistics. Each replica trains with its own rows', and evaluation uses the first "
      "replica's (root) or the mean (average); with sync, all use those of the whole batch");
}

CLI::Option* add_sync(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.sync, kSyncModeNames,
                    "When gradients are summed over the replicas (default: overlapped with backward)");
}

CLI::Option* add_bucket_mb(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.bucket_mb, "Largest bucket of gradients, in MB (default: 25)")
      ->check(positive_int(kMaxBucketMb));
}

CLI::Option* add_allreduce(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(
      command, flag, flags.allreduce, kAllreduceNames,
      "How gradients are summed. auto, the default: nccl between distinct GPUs, else two_shot, and gloo "
      "between processes");
}

CLI::Option* add_compress(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.trainer.compress, kCompressNames,
                    "Round gradients to 16 bits on their way between processes");
}

CLI::Option* add_shard(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(
      command, flag, flags.trainer.shard, kShardNames,
      "What replicas share out, each keeping a part: the optimizer's state, or the gradients as "
      "well (ZeRO stages 1 and 2). The weights have the same bits");
}

CLI::Option* add_kernels(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.kernels, kKernelsNames,
                    "Kernels of the layers: auto (lockstep's, where it has them), direct (the same without "
                    "Winograd's tiles, which round more), torch (torch's alone). LOCKSTEP_CPU_CAPABILITY="
                    "avx512|avx2|portable chooses the instructions of lockstep's kernels on CPUs");
}

CLI::Option* add_cuda_graph(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.trainer.replica.cuda_graph, kCudaGraphNames,
                    "On GPUs, capture a step once and replay it; auto: where possible");
}

CLI::Option* add_in_flight(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.in_flight,
                  "Steps in flight, 1 or 2: how many are queued before the host waits for one (default: 1 on "
                  "CPUs, 2 on GPUs)")
      ->check(positive_int(2))
      ->type_name("1|2");
}

CLI::Option* add_deterministic(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.deterministic,
                          "The same command gives the same bits, on GPUs too (slower there)");
}

CLI::Option* add_invariant(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.trainer.replica.invariant,
                          "1, 2, 4 and 8 replicas give the same bits (slower)");
}

// --invariant refuses the flags that say how sums are made.
Json unless_invariant(const TrainPlan& plan, Json value) {
  return plan.trainer.replica.invariant ? Json() : value;
}

Json planned_sync(const TrainPlan& plan) { return named(kSyncModeNames, plan.trainer.replica.sync.mode); }

Json planned_allreduce(const TrainPlan& plan) { return named(kAllreduceNames, plan.trainer.allreduce); }

template <class Enum, size_t kCount>
Json named_or_null(const Choice<Enum> (&choices)[kCount], const std::optional<Enum>& value) {
  return value ? named(choices, *value) : Json();
}

Json configured_bucket_mb(const TrainFlags&, const TrainPlan& plan) {
  const auto& sync = plan.trainer.replica.sync;
  if (sync.mode == SyncMode::kParameterwise) return {};
  return unless_invariant(plan, sync.bucket_bytes / kBytesPerMb);
}

Json configured_compress(const TrainFlags&, const TrainPlan& plan) {
  const auto compress = plan.trainer.compress;
  return compress == Compress::kNone ? Json() : named(kCompressNames, compress);
}

Json configured_shard(const TrainFlags&, const TrainPlan& plan) {
  const auto shard = plan.trainer.shard;
  return shard == Shard::kNone ? Json() : named(kShardNames, shard);
}

Json planned_held_bytes(const TrainPlan& plan) {
  const auto held = held_bytes(plan);
  return {{"weights", held.weights}, {"masters", held.masters}, {"gradients", held.gradients},
          {"buckets", held.buckets}, {"moments", held.moments}, {"average", held.average}};
}

Json configured_cuda_graph(const TrainFlags&, const TrainPlan& plan) {
  if (!any_gpu(plan.trainer.devices)) return {};
  return named(kCudaGraphNames, plan.trainer.replica.cuda_graph);
}

constexpr Setting kEngineSettings[] = {
    {.name = "precision",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_precision,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kPrecisionNames, plan.trainer.replica.precision); },
     .on_resume = OnResume::kRefused},
    {.name = "accumulate",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_accumulate,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.accumulate; },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "bn",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_bn,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kBnPolicyNames, plan.trainer.bn); },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "sync",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_sync,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = planned_sync,
     .config = [](const auto&, const auto& plan) { return unless_invariant(plan, planned_sync(plan)); },
     .kept = [](const auto& flags, const auto&) { return named_or_null(kSyncModeNames, flags.sync); },
     .on_resume = OnResume::kChangesBits},
    {.name = "bucket-mb",
     .key = "bucket_bytes",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_bucket_mb,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.replica.sync.bucket_bytes; },
     .config = configured_bucket_mb,
     .kept = [](const auto& flags, const auto&) { return or_null(flags.bucket_mb); },
     .on_resume = OnResume::kChangesBits},
    {.name = "allreduce",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_allreduce,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = planned_allreduce,
     .given = [](const auto& flags,
                 const auto&) { return named(kAllreduceNames, flags.allreduce.value_or(Allreduce::kAuto)); },
     .config = [](const auto&, const auto& plan) { return unless_invariant(plan, planned_allreduce(plan)); },
     .kept = [](const auto& flags, const auto&) { return named_or_null(kAllreduceNames, flags.allreduce); },
     .on_resume = OnResume::kChangesBits,
     .depends_on_place = true},
    {.name = "compress",
     .commands = kTrain,
     .group = HelpGroup::kEngine,
     .add = add_compress,
     .in = kInPlan | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kCompressNames, plan.trainer.compress); },
     .config = configured_compress,
     .on_resume = OnResume::kChangesBits,
     .depends_on_place = true},
    {.name = "shard",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_shard,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kShardNames, plan.trainer.shard); },
     .config = configured_shard},
    {.name = "held-bytes", .in = kInPlan, .planned = planned_held_bytes},
    {.name = "wire-bytes",
     .in = kInPlan,
     .planned = [](const auto& plan) { return or_null(plan.wire_bytes()); }},
    {.name = "kernels",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_kernels,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return named(kKernelsNames, plan.kernels); },
     .on_resume = OnResume::kChangesBits},
    {.name = "cuda-graph",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_cuda_graph,
     .in = kInPlan | kInSweep | kInConfig,
     .planned = [](const auto& plan) { return named(kCudaGraphNames, plan.trainer.replica.cuda_graph); },
     .given = [](const auto& flags,
                 const auto&) { return named(kCudaGraphNames, flags.trainer.replica.cuda_graph); },
     .config = configured_cuda_graph,
     .on_resume = OnResume::kChangesBits,
     .depends_on_place = true},
    {.name = "in-flight",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_in_flight,
     .in = kInPlan | kInSweep | kInConfig,
     .planned = [](const auto& plan) -> Json { return steps_in_flight(plan.trainer); },
     .given = [](const auto& flags, const auto&) { return or_null(flags.trainer.in_flight); },
     .config = [](const auto& flags, const auto&) { return or_null(flags.trainer.in_flight); },
     .depends_on_place = true},
    {.name = "deterministic",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_deterministic,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.deterministic; },
     .on_resume = OnResume::kChangesBits},
    {.name = "invariant",
     .commands = kAllCommands,
     .group = HelpGroup::kEngine,
     .add = add_invariant,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.replica.invariant; },
     .on_resume = OnResume::kRefusedUnnamed},
};

}  // namespace

std::span<const Setting> engine_settings() { return kEngineSettings; }

}  // namespace lockstep
