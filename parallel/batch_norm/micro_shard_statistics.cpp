#include <lockstep/parallel/batch_norm/micro_shard_statistics.h>

#include <utility>

#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/support/error.h>

namespace lockstep {

MicroShardStatistics::MicroShardStatistics(const torch::nn::Module& module) {
  for (const auto& part : module.modules()) {
    with_batch_norm(*part, [&](const auto& norm) {
      if (!norm.options.track_running_stats()) return;
      if (!norm.options.momentum()) {
        throw UsageError("invariant needs batch norms with a momentum, but one here averages over all steps",
                         "give the batch norm a momentum, such as 0.1");
      }
      norms_.push_back({.module = part,
                        .mean = norm.running_mean,
                        .variance = norm.running_var,
                        .batches = norm.num_batches_tracked,
                        .momentum = *norm.options.momentum()});
    });
  }
}

void MicroShardStatistics::begin() {
  const torch::NoGradGuard no_grad;
  if (has_rows_.empty()) keep();
  // Starting from zero, a pass leaves momentum x its own statistics.
  for (auto& average : averages_) average.running.zero_();
}

void MicroShardStatistics::keep() {
  averages_.clear();
  counters_.clear();
  for (const auto& norm : norms_) {
    if (!norm.module->is_training()) continue;  // it computes with its averages, and leaves them
    for (const auto& running : {norm.mean, norm.variance}) {
      averages_.push_back(
          {.running = running, .momentum = norm.momentum, .kept = running.clone(), .parts = {}});
    }
    counters_.push_back({.running = norm.batches, .kept = norm.batches.clone()});
  }
}

void MicroShardStatistics::end(bool has_rows) {
  const torch::NoGradGuard no_grad;
  has_rows_.push_back(has_rows);
  for (auto& average : averages_) average.parts.push_back(average.running.clone());
}

void MicroShardStatistics::merge(Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const auto has_rows = std::exchange(has_rows_, {});
  if (averages_.empty()) return;
  const auto own_rows = torch::tensor(has_rows, torch::kInt64).to(endpoint.device());
  const auto all_rows = gather_tensors(own_rows, endpoint).flatten();  // of all micro-shards, in order
  const auto host_rows = all_rows.cpu();
  for (auto& counter : counters_) counter.running.copy_(counter.kept + all_rows.sum());

  for (auto& average : averages_) {
    const auto own = torch::stack(average.parts);  // (micro-shards of this replica, channels)
    const auto all = gather_tensors(own, endpoint).flatten(0, 1);
    average.running.copy_(average.kept);
    for (int64_t i = 0; i < all.size(0); ++i) {
      if (host_rows[i].item<int64_t>()) average.running.mul_(1 - average.momentum).add_(all[i]);
    }
    average.parts.clear();
  }
}

}  // namespace lockstep
