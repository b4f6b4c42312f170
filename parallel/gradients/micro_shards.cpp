#include <lockstep/parallel/gradients/micro_shards.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/parallel/collectives/gather_tensors.h>
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
  throw UsageError(NamedOption{"invariant"} +
                       fmt::format(" cuts each batch into {} parts, which {} replicas cannot share evenly",
                                   kMicroShards, world),
                   "use 1, 2, 4 or 8 replicas");
}

MicroShardSum::MicroShardSum(torch::nn::Module& module, torch::Tensor gradients, Endpoint& endpoint)
    : gradients_(std::move(gradients)), endpoint_(endpoint), statistics_(module) {
  check_invariant_world(endpoint.world_size());
}

void MicroShardSum::begin() {
  const torch::NoGradGuard no_grad;
  gradients_.zero_();
  statistics_.begin();
}

void MicroShardSum::end(bool has_rows) {
  const torch::NoGradGuard no_grad;
  statistics_.end(has_rows);
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
  gradients_.copy_(tree_sum(gather_tensors(own, endpoint_).unbind(0)));
  partials_.clear();
  statistics_.merge(endpoint_);
}

}  // namespace lockstep
