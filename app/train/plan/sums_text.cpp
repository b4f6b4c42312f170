#include <lockstep/app/train/plan/sums_text.h>

#include <fmt/format.h>

#include <lockstep/app/train/plan/plan_bytes.h>
#include <lockstep/parallel/collectives/allreduce/local_algorithms.h>
#include <lockstep/parallel/collectives/nccl_version.h>
#include <lockstep/parallel/devices.h>
#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

// Returns what each process sends per step.
std::string sent_text(const TrainPlan& plan) {
  if (const auto bytes = plan.wire_bytes()) {
    return fmt::format("{:.2f} MB per step", static_cast<double>(*bytes) / 1e6);
  }
  return fmt::format("NCCL {}", nccl_version());
}

std::string gloo_text(const TrainPlan& plan) {
  const auto compress = plan.trainer.compress;
  const auto type = compress == Compress::kNone ? "" : fmt::format(", {}", name_of(kCompressNames, compress));
  const auto staged = any_gpu(plan.trainer.devices) ? ", staged through pinned host memory" : "";
  return fmt::format("gloo{}{}: {}", type, staged, sent_text(plan));
}

std::string allreduce_text(const TrainPlan& plan) {
  const auto allreduce = plan.trainer.allreduce;
  if (allreduce == Allreduce::kNccl) return fmt::format("by NCCL {} (nccl)", nccl_version());
  if (allreduce == Allreduce::kGloo) {
    return fmt::format("in each process, then between them ({})", gloo_text(plan));
  }
  const auto* local = find_local_algorithm(allreduce);
  const auto name = name_of(kAllreduceNames, allreduce);
  return local ? fmt::format("{} ({})", local->text, name) : std::string(name);
}

// Names what is shared out: "gradients, moments and average"; empty for nothing.
std::string shared_words(const HeldBytes& held, Shard shard) {
  std::string words = shard == Shard::kGradients ? "gradients" : "";
  if (held.moments > 0) words += words.empty() ? "moments" : held.average > 0 ? ", moments" : " and moments";
  if (held.average > 0) words += words.empty() ? "averages" : " and averages";
  return words;
}

}  // namespace

std::string gradients_text(const TrainPlan& plan) {
  const auto& sync = plan.trainer.replica.sync;
  if (plan.trainer.replica.invariant) {
    const std::string tree = "of 8 parts of the batch, added in a fixed tree on every replica";
    return plan.world.single_process() ? tree
                                       : fmt::format("{} (between processes: {})", tree, sent_text(plan));
  }
  if (plan.world_size() == 1) return "one replica: nothing to sum";
  const auto how = allreduce_text(plan);
  if (sync.mode == SyncMode::kParameterwise) return fmt::format("summed parameter by parameter, {}", how);
  const bool overlapped =
      sync.mode == SyncMode::kOverlapped && plan.trainer.replica.cuda_graph == CudaGraph::kOff;
  return fmt::format("summed {} (buckets of at most {} MB), {}",
                     overlapped ? "during backward" : "after backward", with_commas(sync.bucket_bytes >> 20),
                     how);
}

std::string held_text(const TrainPlan& plan) {
  const auto held = held_bytes(plan);
  std::string text = memory_text(held.weights) + " of weights";
  const auto add = [&](int64_t bytes, const char* what) {
    if (bytes > 0) text += fmt::format(", {} {}", memory_text(bytes), what);
  };
  add(held.masters, "of fp32 masters");
  add(held.gradients, "of gradients");
  add(held.buckets, "for the buckets that are summed");
  add(held.moments, "of moments");
  add(held.average, "of averaged weights");
  if (plan.world_size() == 1) return text + "; one replica: nothing to share out";
  const auto shared = shared_words(held, plan.trainer.shard);
  const auto name = name_of(kShardNames, plan.trainer.shard);
  if (shared.empty()) return text + fmt::format("; no moments to share out (--shard {})", name);
  return text + fmt::format("; 1/{} of all {} (--shard {})", plan.world_size(), shared, name);
}

}  // namespace lockstep
