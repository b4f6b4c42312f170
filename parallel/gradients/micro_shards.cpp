#include <lockstep/parallel/gradients/micro_shards.h>

#include <fmt/format.h>
#include <torch/nn/modules/batchnorm.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

// The sum of 2^k tensors in the fixed tree, which first adds adjacent ones.
torch::Tensor tree_sum(std::vector<torch::Tensor> parts) {
  while (parts.size() > 1) {
    for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = parts[2 * i] + parts[2 * i + 1];
    parts.resize(parts.size() / 2);
  }
  return parts.front();
}

}  // namespace

void check_invariant_world(int world) {
  if (world >= 1 && world <= kMicroShards && kMicroShards % world == 0) return;
  throw UsageError(
      fmt::format("invariant cuts each batch into {} parts, which {} replicas cannot share evenly",
                  kMicroShards, world),
      "use 1, 2, 4 or 8 replicas");
}

MicroShardSum::MicroShardSum(torch::nn::Module& module, torch::Tensor gradients, Endpoint& endpoint)
    : gradients_(std::move(gradients)), endpoint_(endpoint) {
  check_invariant_world(endpoint.world_size());
  const auto add = [&](const auto& norm) {
    if (!norm || !norm->options.track_running_stats()) return;
    if (!norm->options.momentum()) {
      throw UsageError("invariant needs batch norms with a momentum, but one here averages over all steps",
                       "give the batch norm a momentum, such as 0.1");
    }
    norms_.push_back({.module = norm,
                      .mean = norm->running_mean,
                      .variance = norm->running_var,
                      .batches = norm->num_batches_tracked,
                      .momentum = *norm->options.momentum()});
  };
  for (const auto& part : module.modules()) {
    add(std::dynamic_pointer_cast<torch::nn::BatchNorm1dImpl>(part));
    add(std::dynamic_pointer_cast<torch::nn::BatchNorm2dImpl>(part));
    add(std::dynamic_pointer_cast<torch::nn::BatchNorm3dImpl>(part));
  }
}

void MicroShardSum::begin() {
  const torch::NoGradGuard no_grad;
  gradients_.zero_();
  if (has_rows_.empty()) keep_statistics();
  // Starting from zero, a pass leaves momentum x its own statistics.
  for (auto& statistics : statistics_) statistics.running.zero_();
}

void MicroShardSum::keep_statistics() {
  statistics_.clear();
  counters_.clear();
  for (const auto& norm : norms_) {
    if (!norm.module->is_training()) continue;  // it computes with its averages, and leaves them
    for (const auto& running : {norm.mean, norm.variance}) {
      statistics_.push_back(
          {.running = running, .momentum = norm.momentum, .kept = running.clone(), .parts = {}});
    }
    counters_.push_back({.running = norm.batches, .kept = norm.batches.clone()});
  }
}

void MicroShardSum::end(bool has_rows) {
  const torch::NoGradGuard no_grad;
  has_rows_.push_back(has_rows);
  for (auto& statistics : statistics_) statistics.parts.push_back(statistics.running.clone());
  push(gradients_.clone());
}

// Adds a leaf to the tree, as a binary counter adds one.
void MicroShardSum::push(torch::Tensor sum) {
  int level = 0;
  while (!partials_.empty() && partials_.back().level == level) {
    sum = partials_.back().sum.add_(sum);
    partials_.pop_back();
    ++level;
  }
  partials_.push_back({.level = level, .sum = std::move(sum)});
}

void MicroShardSum::sum() {
  const torch::NoGradGuard no_grad;
  const auto own = partials_.front().sum;  // of all micro-shards of the replica
  auto all = torch::empty({endpoint_.world_size(), own.numel()}, own.options());
  endpoint_.all_gather(own, all).wait();
  gradients_.copy_(tree_sum(all.unbind(0)));
  partials_.clear();
  update_statistics();
  has_rows_.clear();
}

void MicroShardSum::update_statistics() {
  if (statistics_.empty()) return;
  // Which micro-shards had rows, over all replicas and in order.
  std::vector<int64_t> own_rows(has_rows_.begin(), has_rows_.end());
  const auto flags = torch::tensor(own_rows, torch::kInt64).to(gradients_.device());
  auto all_flags = torch::empty({kMicroShards}, flags.options());
  endpoint_.all_gather(flags, all_flags).wait();
  const auto host_flags = all_flags.cpu();
  for (auto& counter : counters_) counter.running.copy_(counter.kept + all_flags.sum());

  for (auto& statistics : statistics_) {
    const auto own = torch::stack(statistics.parts);  // (micro-shards of this replica, channels)
    auto all = torch::empty({kMicroShards, own.size(1)}, own.options());
    endpoint_.all_gather(own, all).wait();
    statistics.running.copy_(statistics.kept);
    for (int64_t i = 0; i < kMicroShards; ++i) {
      if (host_flags[i].item<int64_t>()) statistics.running.mul_(1 - statistics.momentum).add_(all[i]);
    }
    statistics.parts.clear();
  }
}

}  // namespace lockstep
