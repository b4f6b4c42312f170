// A sampler for torch's DataLoader, for loops of your own with several replicas. Each has a sampler and a
// loader of its own:
//
//   const RankSampler sampler({.rows = rows, .batch_rows = 256, .rank = rank, .world = world_size});
//   auto loader = torch::data::make_data_loader(data_set, sampler, torch::data::DataLoaderOptions());
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     auto batch = loader->begin();  // starts the next epoch
//     for (int64_t step = 0; step < sampler.steps(); ++step) {
//       optimizer.zero_grad();
//       if (sampler.own_rows(step) > 0) {
//         (loss_sum(*batch) / sampler.batch_rows(step)).backward();
//         ++batch;
//         sync.wait();
//       } else {
//         sync.allreduce_all();  // the last batch has fewer rows than there are replicas
//       }
//       optimizer.step();
//     }
//   }
#pragma once

#include <torch/data/samplers/base.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

struct RankSamplerOptions {
  int64_t rows = -1;       // of the data set; has no default
  int64_t batch_rows = 1;  // of a global batch; the last one of an epoch may have fewer
  int rank = 0;            // of this replica in the world
  int world = 1;           // replicas of all processes
  uint64_t seed = 0;       // the same on all ranks
  // Where it begins. A loop that goes on after `step` steps of `epoch` gives these two.
  int64_t first_epoch = 0;
  int64_t first_step = 0;  // of the first epoch
};

// Gives a rank its rows of each global batch: batch `step` of an epoch is the next batch_rows rows of
// batch_order(seed, epoch, rows), and shard_sizes() divides it among the ranks, in order, as Trainer does. So
// every row comes once per epoch, and the batches are the same for any number of replicas. An iteration of a
// loader has one element for each step in which this rank has rows: torch's loader cannot hand out an empty
// batch. All ranks make the same number of steps. Copies are independent. Not thread-safe.
class RankSampler : public torch::data::samplers::Sampler<> {
 public:
  // Throws UsageError for values out of range.
  explicit RankSampler(RankSamplerOptions options);

  int64_t steps() const;  // of an epoch

  // Rows of the global batch, and those of this rank, in a step of an epoch, 0 .. steps() - 1. Throws
  // UsageError for others.
  int64_t batch_rows(int64_t step) const;
  int64_t own_rows(int64_t step) const;

  // Starts an epoch: first_epoch at the first call, at first_step, and the next one at each further call.
  // The first call after load() stays at the place that was loaded, unless next() has been called before. A
  // loader's begin() calls it. new_size: rows of the data set from now on.
  void reset(std::optional<size_t> new_size = std::nullopt) override;

  // The row numbers of the next step in which this rank has rows; nullopt at the end of the epoch.
  // batch_size: DataLoaderOptions::batch_size, which must be left at 1, because the sampler makes the
  // batches; else throws UsageError.
  std::optional<std::vector<size_t>> next(size_t batch_size) override;

  // The place in the epoch. Load it into a sampler of the same options. Not for the place of a loop with a
  // loader: that has a copy of the sampler, which reads ahead, and the loop's own object stays where it was.
  // Such a loop keeps its epoch and step, and goes on by first_epoch and first_step.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

 private:
  std::vector<int64_t> shards(int64_t step) const;

  RankSamplerOptions options_;
  int64_t epoch_ = 0;
  int64_t step_ = 0;            // the next one
  bool started_ = false;        // reset() has been called
  bool loaded_ = false;         // and neither reset() nor next() since
  std::vector<int64_t> order_;  // of the rows in this epoch; empty: not drawn yet
};

}  // namespace lockstep
