#include <lockstep/app/train/combinations.h>

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

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

bool same_file(const std::optional<std::string>& a, const std::optional<std::string>& b) {
  return a && a == b;
}

}  // namespace

void check_combinations(const TrainFlags& options, const Recipe& recipe) {
  const bool adamw = options.optimizer == OptimizerKind::kAdamW;
  const double momentum = options.momentum.value_or(recipe.momentum);
  const Combination combinations[] = {
      {options.deterministic && options.split == "auto",
       "--deterministic cannot be combined with --split auto: shares found by timing vary between runs",
       "name the shares: --split 3:1"},
      {options.invariant && options.split != "even",
       "--invariant cuts every batch into eight equal parts, --split asks for others", "leave --split out"},
      {options.invariant && options.accumulate > 1,
       "--invariant cuts every batch into eight parts that are computed one by one, --accumulate asks for "
       "others",
       "leave --accumulate out"},
      {options.invariant && (options.sync || options.bucket_mb),
       "--invariant adds whole gradients in a fixed tree: --sync and --bucket-mb have nothing to choose",
       "leave them out"},
      {options.invariant && options.allreduce.has_value(),
       "--invariant adds gradients in a fixed tree on every replica: --allreduce has nothing to choose",
       "leave it out"},
      {options.cuda_graph == CudaGraph::kOn && options.trace.has_value(),
       "--cuda-graph on replays a step as a whole, --trace looks into each", "leave one of them out"},
      {options.cuda_graph == CudaGraph::kOn && options.invariant,
       "--cuda-graph on replays a step as a whole, --invariant exchanges the parts of each",
       "leave one of them out"},
      {options.cuda_graph == CudaGraph::kOn && options.split == "auto",
       "--cuda-graph on replays steps of fixed shares, --split auto changes them",
       "name the shares: --split 3:1"},
      {options.invariant && options.bn != BnPolicy::kRoot,
       "--invariant gives all replicas the same batch-norm statistics: --bn has nothing to choose",
       "leave --bn out"},
      {options.sync == SyncMode::kParameterwise && options.bucket_mb.has_value(),
       "--sync parameterwise sums parameter by parameter: it has no buckets for --bucket-mb",
       "use --sync bucketed or --sync overlapped"},
      {adamw && (options.momentum.has_value() || options.nesterov),
       "--momentum and --nesterov belong to --optimizer sgd, adamw has moments of its own",
       "leave them out, or use --optimizer sgd"},
      {!adamw && options.nesterov && momentum == 0,
       "--nesterov is a form of momentum, and --momentum is 0 (by itself or by the recipe)",
       "add --momentum 0.9"},
      {same_file(options.metrics, options.trace), "--metrics and --trace name the same file", "name two"},
      {same_file(options.metrics, options.save), "--metrics and --save name the same file", "name two"},
      {same_file(options.trace, options.save), "--trace and --save name the same file", "name two"},
  };
  for (const auto& combination : combinations) {
    if (combination.given) throw UsageError(combination.what, combination.hint);
  }
}

bool any_gpu(std::span<const torch::Device> devices) {
  return std::any_of(devices.begin(), devices.end(), [](auto device) { return device.is_cuda(); });
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

void check_precision(Precision precision, std::span<const torch::Device> devices) {
  if (precision != Precision::kTf32 || any_gpu(devices)) return;
  throw UsageError(fmt::format("--precision tf32 is for GPUs, the devices are {}", to_string(devices)),
                   "use fp32, or bf16");
}

}  // namespace lockstep
