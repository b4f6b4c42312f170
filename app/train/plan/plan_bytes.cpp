#include <lockstep/app/train/plan/plan_bytes.h>

#include <algorithm>
#include <set>
#include <string>

#include <lockstep/models/costs.h>
#include <lockstep/parallel/collectives/ordered_sum.h>
#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/training/evaluation.h>

namespace lockstep {
namespace {

// Training keeps the activations of all layers, evaluation those of two or three at a time: about a sixth.
constexpr int64_t kForwardShare = 6;
constexpr int64_t kBf16Bytes = 2;

// How many of a row's activations have 16 bits. In fp16 lockstep's kernels compute all layers, in fp32, or
// none.
int64_t elements_of_16_bits(const TrainPlan& plan, const ModelCosts& costs, torch::DeviceType device) {
  switch (plan.trainer.replica.precision) {
    case Precision::kBf16:
      return costs.activations - costs.floats;
    case Precision::kFp16:
      return plan.stays_in_fp32(device) ? 0 : costs.activations;
    default:
      return 0;
  }
}

}  // namespace

HeldBytes held_bytes(const TrainPlan& plan) {
  return held_bytes(plan, plan.world_size(), plan.trainer.shard);
}

HeldBytes held_bytes(const TrainPlan& plan, int replicas, Shard shard) {
  const int64_t trained = plan.gradient_bytes();
  const auto part = [&](bool shared_out) {
    return shared_out ? (trained + replicas - 1) / replicas : trained;
  };
  const bool shares_gradients = shard == Shard::kGradients && replicas > 1;
  const auto state = part(shard != Shard::kNone);
  const bool rounds = plan.keeps_bf16_weights;
  const int64_t all = plan.element_bytes() * plan.parameter_count;
  return {.weights = rounds ? kBf16Bytes * plan.parameter_count : all,
          .masters = rounds ? all : 0,
          .gradients = part(shares_gradients),
          .buckets = shares_gradients ? plan.element_bytes() * plan.largest_neighbours : 0,
          .moments = state * moments_of(plan.trainer.replica.optimizer),
          .average = plan.trainer.ema > 0 ? state : 0};
}

int64_t moments_of(const OptimizerOptions& optimizer) {
  return optimizer.kind == OptimizerKind::kSgd ? optimizer.momentum > 0 : 2;
}

int64_t replica_bytes(const TrainPlan& plan, int64_t rows, torch::DeviceType device) {
  const auto& replica = plan.trainer.replica;
  const int64_t element = plan.element_bytes();
  const int64_t all = element * plan.parameter_count;
  const int64_t partial_sums = replica.invariant ? 3 * all : 0;
  // While the average is tested, after backward.
  const int64_t rounded = plan.keeps_bf16_weights ? kBf16Bytes * plan.parameter_count : 0;
  const int64_t trained_copy = plan.trainer.ema > 0 ? all + rounded : 0;
  const auto held = held_bytes(plan);
  const int64_t weights = held.all() + std::max<int64_t>(0, trained_copy - held.buckets) + partial_sums;
  if (plan.program) return weights + plan.measured_row_bytes * rows;
  const auto costs = costs_of(plan.spec(), device, replica_threads(plan.trainer));
  const int64_t halves = elements_of_16_bits(plan, costs, device);
  return weights + (element * costs.activations - element / 2 * halves) * rows + costs.working_bytes;
}

int64_t host_bytes(const TrainPlan& plan) {
  const auto& replica = plan.trainer.replica;
  const auto sizes = plan.step_sizes();
  const int64_t evaluated = std::min(kEvaluationBlock, plan.data.set.test.rows);
  int64_t bytes = 0;
  for (size_t i = 0; i < plan.trainer.devices.size(); ++i) {
    if (!plan.trainer.devices[i].is_cpu()) continue;
    const int64_t parts = replica.invariant ? kMicroShards / plan.world_size() : plan.trainer.accumulate;
    const int64_t rows = sizes[static_cast<size_t>(plan.world.layout().first_rank()) + i];
    const int64_t trained = (rows + parts - 1) / parts;
    bytes += replica_bytes(plan, std::max(trained, evaluated / kForwardShare), torch::kCPU);
  }
  std::set<std::string> distinct;
  for (const auto& device : plan.trainer.devices) distinct.insert(device.str());
  bytes += plan.data.ahead_bytes * std::ssize(distinct) +
           plan.data.decoding_bytes * std::ssize(plan.trainer.devices);
  bytes += checkpoint_bytes(plan);
  const int processes = plan.world.place.processes;
  const auto compress = plan.trainer.compress;
  if (compress != Compress::kNone)
    return bytes + ordered_sum_bytes(plan.largest_bucket, processes, sent_type(compress));
  if (processes < 3) return bytes;
  return bytes + ordered_sum_bytes(plan.largest_bucket, processes, torch::kFloat);
}

int64_t checkpoint_bytes(const TrainPlan& plan) {
  if (!plan.keeps_checkpoints) return 0;
  const int64_t kept = moments_of(plan.trainer.replica.optimizer) + (plan.trainer.ema > 0 ? 1 : 0);
  return plan.element_bytes() * plan.parameter_count + kept * plan.gradient_bytes();
}

}  // namespace lockstep
