#include <lockstep/parallel/batch_norm/micro_shard_statistics.h>

#include <algorithm>
#include <utility>

#include <lockstep/parallel/batch_norm/norms.h>
#include <lockstep/parallel/collectives/gather_tensors.h>
#include <lockstep/support/error.h>

namespace lockstep {

MicroShardStatistics::MicroShardStatistics(const torch::nn::Module& module) {
  for (const auto& part : module.modules()) {
    with_batch_norm(*part, [&](const auto& norm) {
      if (!norm.options.track_running_stats()) return;
      const bool known = std::ranges::any_of(norms_, [&](const Norm& one) { return one.module == part; });
      if (known) return;  // registered under another name, too
      if (!norm.options.momentum()) {
        throw UsageError("invariant needs batch norms with a momentum, but one here averages over all steps",
                         "give the batch norm a momentum, such as 0.1");
      }
      norms_.push_back({.module = part,
                        .mean = norm.running_mean,
                        .variance = norm.running_var,
                        .batches = norm.num_batches_tracked,
                        .momentum = *norm.options.momentum(),
                        .kept = {},
                        .kept_batches = {},
                        .parts = {}});
    });
  }
}

void MicroShardStatistics::begin() {
  const torch::NoGradGuard no_grad;
  for (auto& norm : norms_) {
    if (has_rows_.empty()) {
      const bool trains =
          norm.module->is_training();  // otherwise it computes with its averages, and leaves them
      norm.kept = trains ? torch::stack({norm.mean, norm.variance}) : torch::Tensor();
      norm.kept_batches = norm.batches.clone();
    }
    if (!norm.kept.defined()) continue;
    norm.mean.zero_();  // from zero, a pass leaves momentum x its own statistics
    norm.variance.zero_();
  }
}

void MicroShardStatistics::end(bool has_rows) {
  const torch::NoGradGuard no_grad;
  has_rows_.push_back(has_rows);
  for (auto& norm : norms_) {
    if (norm.kept.defined()) norm.parts.push_back(torch::stack({norm.mean, norm.variance}));
  }
}

void MicroShardStatistics::merge(Endpoint& endpoint) {
  const torch::NoGradGuard no_grad;
  const auto has_rows = std::exchange(has_rows_, {});
  const auto trains = [](const Norm& norm) { return norm.kept.defined(); };
  if (std::none_of(norms_.begin(), norms_.end(), trains)) return;
  const auto own_rows = torch::tensor(has_rows, torch::kInt64).to(endpoint.device());
  const auto all_rows = gather_tensors(own_rows, endpoint).flatten();  // of all micro-shards, in order
  const auto host_rows = all_rows.cpu();
  for (auto& norm : norms_) {
    if (!trains(norm)) continue;
    const auto parts = std::exchange(norm.parts, {});
    const auto all = gather_tensors(torch::stack(parts), endpoint).flatten(0, 1);  // (shards, 2, channels)
    for (int64_t i = 0; i < all.size(0); ++i) {
      if (host_rows[i].item<int64_t>()) norm.kept.mul_(1 - norm.momentum).add_(all[i]);
    }
    norm.mean.copy_(norm.kept[0]);
    norm.variance.copy_(norm.kept[1]);
    norm.batches.copy_(norm.kept_batches + all_rows.sum());
  }
}

}  // namespace lockstep
