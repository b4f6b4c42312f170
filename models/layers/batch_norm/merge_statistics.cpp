#include <lockstep/models/layers/batch_norm/merge_statistics.h>

#include <fmt/format.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

BatchStatistics merged(const BatchStatistics& a, const BatchStatistics& b) {
  const auto count = a.count + b.count;
  const auto share = b.count / count.clamp_min(1);  // there may be no values up to here
  const auto apart = b.mean - a.mean;
  return {count, a.mean + apart * share, a.squares + b.squares + apart * apart * (a.count * share)};
}

// Asks the device only where it must: a replica with two values knows enough.
void require_two_values(int64_t own, const BatchStatistics& all) {
  if (own >= 2) return;
  const auto count = static_cast<int64_t>(all.count.item<double>());
  if (count >= 2) return;
  throw UsageError(
      fmt::format(
          "a batch normalisation in training needs two values per channel, all replicas together have {}",
          count),
      "train on larger batches");
}

}  // namespace

BatchStatistics merge_statistics(int64_t count, const torch::Tensor& mean, const torch::Tensor& squares,
                                 StatisticsExchange& exchange) {
  const torch::NoGradGuard no_grad;
  const int64_t c = mean.numel();
  const auto own = torch::cat({torch::full({1}, static_cast<double>(count), mean.options()), mean, squares});
  const auto rows = exchange.gather(own);  // (world, 1 + 2c)
  const auto of_rank = [&](int64_t rank) {
    const auto row = rows[rank];
    return BatchStatistics{row[0], row.narrow(0, 1, c), row.narrow(0, 1 + c, c)};
  };
  auto all = of_rank(0);
  for (int64_t rank = 1; rank < rows.size(0); ++rank) all = merged(all, of_rank(rank));
  require_two_values(count, all);
  return all;
}

void follow_statistics(const torch::Tensor& running_mean, const torch::Tensor& running_var, double momentum,
                       const BatchStatistics& all) {
  const torch::NoGradGuard no_grad;
  const auto follow = [&](const torch::Tensor& running, const torch::Tensor& batch) {
    if (running.defined()) running.copy_(running.to(torch::kFloat64) * (1 - momentum) + batch * momentum);
  };
  follow(running_mean, all.mean);
  follow(running_var, all.squares / (all.count - 1));
}

torch::Tensor sum_over_replicas(const torch::Tensor& own, StatisticsExchange& exchange) {
  const auto rows = exchange.gather(own);
  auto sum = rows[0].clone();
  for (int64_t rank = 1; rank < rows.size(0); ++rank) sum.add_(rows[rank]);
  return sum;
}

}  // namespace lockstep
