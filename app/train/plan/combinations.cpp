#include <lockstep/app/train/plan/combinations.h>

#include <fmt/format.h>

#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

struct Combination {
  bool given;
  const char* what;
  const char* hint;
};

}  // namespace

void check_combinations(const TrainFlags& options, const Recipe& recipe) {
  const auto& trainer = options.trainer;
  const auto& replica = trainer.replica;
  const bool adamw = replica.optimizer.kind == OptimizerKind::kAdamW;
  const double momentum = options.momentum.value_or(recipe.momentum);
  const bool compress = trainer.compress != Compress::kNone;
  const Combination combinations[] = {
      {options.deterministic && options.split == "auto",
       "--deterministic cannot be combined with --split auto: shares found by timing vary between runs",
       "name the shares: --split 3:1"},
      {replica.invariant && options.split != "even",
       "--invariant cannot be combined with --split: it cuts every batch into eight equal parts",
       "leave --split out"},
      {replica.invariant && trainer.accumulate > 1,
       "--invariant cannot be combined with --accumulate: it computes every batch in eight parts anyway",
       "leave --accumulate out"},
      {replica.invariant && (options.sync || options.bucket_mb),
       "--invariant cannot be combined with --sync or --bucket-mb: it sums gradients in an order of its own",
       "leave them out"},
      {replica.invariant && options.allreduce.has_value(),
       "--invariant cannot be combined with --allreduce: it sums gradients in an order of its own",
       "leave it out"},
      {replica.invariant && compress,
       "--invariant cannot be combined with --compress: it gives the same bits for any number of processes",
       "leave one of them out"},
      {compress && replica.precision == Precision::kFp64,
       "--compress cannot be combined with --precision fp64: sums in fp64 are not rounded",
       "leave one of them out"},
      {compress && options.allreduce == Allreduce::kNccl,
       "--compress cannot be combined with --allreduce nccl: NCCL sends gradients as they are",
       "use --allreduce gloo, or leave one of them out"},
      {replica.cuda_graph == CudaGraph::kOn && options.trace.has_value(),
       "--cuda-graph on cannot be combined with --trace: a replayed step cannot be timed in parts",
       "leave one of them out"},
      {replica.cuda_graph == CudaGraph::kOn && replica.invariant,
       "--cuda-graph on cannot be combined with --invariant: its steps are computed in parts and not "
       "captured",
       "leave one of them out"},
      {replica.cuda_graph == CudaGraph::kOn && options.split == "auto",
       "--cuda-graph on cannot be combined with --split auto: captured steps need fixed shares",
       "name the shares: --split 3:1"},
      {replica.cuda_graph == CudaGraph::kOn && trainer.bn == BnPolicy::kSync,
       "--cuda-graph on cannot be combined with --bn sync: replicas wait for each other within a step",
       "leave one of them out"},
      {options.split == "auto" && trainer.bn == BnPolicy::kSync,
       "--split auto cannot be combined with --bn sync: no replica takes less time where each waits for all",
       "name the shares: --split 3:1"},
      {replica.invariant && trainer.bn == BnPolicy::kSync,
       "--invariant cannot be combined with --bn sync: it normalises each eighth of a batch alone",
       "leave one of them out: with --bn sync replicas agree to rounding"},
      {replica.invariant && trainer.bn != BnPolicy::kRoot,
       "--invariant cannot be combined with --bn: all replicas have the same batch-norm statistics",
       "leave --bn out"},
      {options.sync == SyncMode::kParameterwise && options.bucket_mb.has_value(),
       "--sync parameterwise cannot be combined with --bucket-mb: it uses no buckets",
       "use --sync bucketed or --sync overlapped"},
      {adamw && (options.momentum.has_value() || replica.optimizer.nesterov),
       "--optimizer adamw cannot be combined with --momentum or --nesterov: they are settings of sgd",
       "leave them out, or use --optimizer sgd"},
      {options.quiet &&
           (options.progress == ProgressDisplay::kBar || options.progress == ProgressDisplay::kPlain),
       "--quiet cannot be combined with --progress bar or plain: it shows no progress",
       "leave one of them out"},
      {!adamw && replica.optimizer.nesterov && momentum == 0,
       "--nesterov needs momentum, and --momentum is 0 (as given, or by the recipe)", "add --momentum 0.9"},
      {options.print_config && (options.dry_run || options.json),
       "--print-config cannot be combined with --dry-run or --json: it prints a configuration, and trains "
       "nothing",
       "leave them out"},
  };
  for (const auto& combination : combinations) {
    if (combination.given) throw UsageError(combination.what, combination.hint);
  }
}

void check_invariant(int replicas) {
  if (kMicroShards % replicas == 0) return;
  throw UsageError(
      fmt::format("--invariant cuts each batch into {} parts, which {} replicas cannot share evenly",
                  kMicroShards, replicas),
      "use 1, 2, 4 or 8 replicas");
}

void check_cuda_graph(CudaGraph graph, std::span<const torch::Device> devices) {
  if (graph != CudaGraph::kOn || any_gpu(devices)) return;
  throw UsageError(fmt::format("--cuda-graph on is for GPUs, the devices are {}", to_string(devices)),
                   "leave it out: on CPUs nothing is captured");
}

void check_allreduce(const TrainWorld& world, Allreduce allreduce, std::span<const torch::Device> devices) {
  if (world.single_process() && allreduce == Allreduce::kGloo) {
    throw UsageError("--allreduce gloo sums between processes, and this process is alone",
                     "leave it out, or start several processes");
  }
  if (!world.single_process() && find_local_algorithm(allreduce)) {
    throw UsageError(fmt::format("--allreduce {} sums within one process, and there are {}",
                                 name_of(kAllreduceNames, allreduce), world.place.processes),
                     "use --allreduce gloo, or leave it out");
  }
  if (allreduce == Allreduce::kNccl && !any_gpu(devices)) {
    throw UsageError(fmt::format("--allreduce nccl is for GPUs, the devices are {}", to_string(devices)),
                     "leave it out: CPUs need no NCCL");
  }
}

Allreduce allreduce_of(const TrainWorld& world, Allreduce wanted, std::span<const torch::Device> devices) {
  return world.single_process() ? choose_allreduce(wanted, devices) : choose_for_all(wanted, world.supports);
}

void check_compress_of(const TrainWorld& world, Compress compress) {
  if (!world.single_process() || compress == Compress::kNone) return;
  throw UsageError(
      fmt::format("--compress {} rounds what travels between processes, and this process is alone",
                  name_of(kCompressNames, compress)),
      "leave it out, or start several processes");
}

void check_precision(Precision precision, std::span<const torch::Device> devices) {
  if (precision != Precision::kTf32 || any_gpu(devices)) return;
  throw UsageError(fmt::format("--precision tf32 is for GPUs, the devices are {}", to_string(devices)),
                   "use fp32 or bf16");
}

}  // namespace lockstep
