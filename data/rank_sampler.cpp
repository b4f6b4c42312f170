#include <lockstep/data/rank_sampler.h>

#include <fmt/format.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include <lockstep/data/batch_order.h>
#include <lockstep/support/error.h>
#include <lockstep/support/shard_sizes.h>

namespace lockstep {
namespace {

RankSamplerOptions checked(RankSamplerOptions options) {
  const auto at_least = [](const char* name, int64_t value, int64_t least) {
    if (value >= least) return;
    throw UsageError(fmt::format("{} is {}", name, value), fmt::format("it must be at least {}", least));
  };
  at_least("rows", options.rows, 0);
  at_least("batch_rows", options.batch_rows, 1);
  at_least("world", options.world, 1);
  at_least("first_epoch", options.first_epoch, 0);
  at_least("first_step", options.first_step, 0);
  if (options.rank < 0 || options.rank >= options.world) {
    throw UsageError(fmt::format("rank is {} in a world of {}", options.rank, options.world),
                     "ranks count from 0: endpoint.rank() and endpoint.world_size()");
  }
  return options;
}

}  // namespace

RankSampler::RankSampler(RankSamplerOptions options)
    : options_(checked(options)), epoch_(options.first_epoch), step_(options.first_step) {}

int64_t RankSampler::steps() const {
  return options_.rows / options_.batch_rows + (options_.rows % options_.batch_rows > 0 ? 1 : 0);
}

int64_t RankSampler::batch_rows(int64_t step) const {
  if (step < 0 || step >= steps()) {
    throw UsageError(fmt::format("there is no step {} in an epoch of {}", step, steps()),
                     "steps count from 0 in every epoch");
  }
  return std::min(options_.batch_rows, options_.rows - step * options_.batch_rows);
}

std::vector<int64_t> RankSampler::shards(int64_t step) const {
  return shard_sizes(batch_rows(step), options_.world);
}

int64_t RankSampler::own_rows(int64_t step) const { return shards(step)[static_cast<size_t>(options_.rank)]; }

void RankSampler::reset(std::optional<size_t> new_size) {
  if (new_size) options_.rows = static_cast<int64_t>(*new_size);
  order_.clear();
  const bool again = std::exchange(started_, true);
  if (std::exchange(loaded_, false)) return;
  if (again) ++epoch_;
  step_ = again ? 0 : options_.first_step;
}

std::optional<std::vector<size_t>> RankSampler::next(size_t batch_size) {
  if (batch_size != 1) {
    throw UsageError(fmt::format("the loader's batch_size is {}, but RankSampler makes batches of {} rows",
                                 batch_size, options_.batch_rows),
                     "leave DataLoaderOptions::batch_size at 1");
  }
  loaded_ = false;
  while (step_ < steps() && own_rows(step_) == 0) ++step_;
  if (step_ >= steps()) return std::nullopt;
  if (order_.empty()) order_ = batch_order(options_.seed, epoch_, options_.rows);
  const auto sizes = shards(step_);
  const auto own = sizes.begin() + options_.rank;
  const auto begin =
      order_.begin() + step_ * options_.batch_rows + std::accumulate(sizes.begin(), own, int64_t{0});
  ++step_;
  return std::vector<size_t>(begin, begin + *own);
}

void RankSampler::save(torch::serialize::OutputArchive& archive) const {
  archive.write("place", torch::tensor({epoch_, step_, static_cast<int64_t>(started_)}, torch::kInt64),
                /*is_buffer=*/true);
}

void RankSampler::load(torch::serialize::InputArchive& archive) {
  auto place = torch::empty({3}, torch::kInt64);
  archive.read("place", place, /*is_buffer=*/true);
  epoch_ = place[0].item<int64_t>();
  step_ = place[1].item<int64_t>();
  started_ = place[2].item<bool>();
  loaded_ = true;
  order_.clear();
}

}  // namespace lockstep
