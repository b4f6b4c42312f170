// The functions of Trainer that deal the rows of a step to the replicas.
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <lockstep/parallel/gradients/micro_shards.h>
#include <lockstep/parallel/split_batch.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/replica.h>
#include <lockstep/parallel/training/split_tuner.h>
#include <lockstep/support/row_numbers.h>

namespace lockstep {
namespace {

// Cuts rows into parts of these sizes, in order.
std::vector<std::span<const int64_t>> cut(std::span<const int64_t> rows, const std::vector<int64_t>& sizes) {
  std::vector<std::span<const int64_t>> parts;
  for (const auto size : sizes) {
    parts.push_back(rows.first(static_cast<size_t>(size)));
    rows = rows.subspan(static_cast<size_t>(size));
  }
  return parts;
}

}  // namespace

// Cuts the rows for all ranks, and keeps the parts of this process's replicas.
std::vector<Trainer::MicroBatches> Trainer::dealt(std::span<const int64_t> rows) const {
  const auto count = [](auto part) { return static_cast<int64_t>(part.size()); };
  const auto first = static_cast<size_t>(first_rank());
  std::vector<MicroBatches> own(replicas_.size());
  if (options_.replica.invariant) {
    const auto parts = cut(rows, shard_sizes(count(rows), kMicroShards));
    const auto each = parts.size() / static_cast<size_t>(world_size());  // consecutive ones for each rank
    for (size_t i = 0; i < own.size(); ++i) {
      const auto of_rank = std::span(parts).subspan((first + i) * each, each);
      own[i].assign(of_rank.begin(), of_rank.end());
    }
    return own;
  }
  if (norm_communicator_) {
    // Micro-batches first, so that they hold the same rows for any number of replicas.
    for (const auto micro_batch : cut(rows, shard_sizes(count(rows), options_.accumulate))) {
      if (micro_batch.empty()) continue;
      const auto parts = cut(micro_batch, shard_sizes(count(micro_batch), world_size(), split()));
      for (size_t i = 0; i < own.size(); ++i) own[i].push_back(parts[first + i]);
    }
    return own;
  }
  const auto shards = cut(rows, shard_sizes(count(rows), world_size(), split()));
  for (size_t i = 0; i < own.size(); ++i) {
    const auto shard = shards[first + i];
    for (const auto part : cut(shard, shard_sizes(count(shard), options_.accumulate))) {
      if (!part.empty()) own[i].push_back(part);
    }
  }
  return own;
}

std::vector<ReplicaStep> Trainer::replica_steps(std::span<const int64_t> rows, int64_t epoch) const {
  std::vector<ReplicaStep> steps;
  for (auto& micro_batches : dealt(rows)) {
    steps.push_back({.micro_batches = std::move(micro_batches),
                     .batch_rows = static_cast<int64_t>(rows.size()),
                     .lr = lr(),
                     .epoch = epoch,
                     .number = steps_taken_,
                     .seed = options_.seed});
  }
  return steps;
}

const std::vector<double>& Trainer::split() const { return tuner_ ? tuner_->shares() : options_.split; }

bool Trainer::split_settled() const { return !tuner_ || tuner_->settled(); }

void Trainer::will_need(std::span<const int64_t> rows, int64_t epoch) const {
  require_rows_exist(rows, train_sources_.front()->size());
  const auto own = dealt(rows);
  for (size_t i = 0; i < own.size(); ++i) {
    for (const auto part : own[i]) train_sources_[i]->will_need(part, epoch);
  }
}

}  // namespace lockstep
