// A torch::data Dataset with its transforms, for loops of your own with several replicas; dataset_rows.h
// feeds one to a Trainer. Each replica has a loader of its own:
//
//   DataLoader loader(data_set, {.batch_rows = 256, .rank = rank, .world = world_size});
//   for (int64_t epoch = 0; epoch < epochs; ++epoch) {
//     loader.start(epoch);  // a run that goes on: start(epoch, step)
//     while (const auto step = loader.next()) {
//       optimizer.zero_grad();
//       if (step->batch) (loss_sum(*step->batch) / step->batch_rows).backward();
//       step->batch ? sync.wait() : sync.allreduce_all();  // a small last batch may leave it no rows
//       optimizer.step();
//     }
//   }
//
// Batch `step` of an epoch is the next batch_rows rows of batch_order(seed, epoch, rows), and shard_sizes()
// divides it among the ranks, in order, as Trainer does. So every row comes once per epoch, and the batches
// are the same for any number of replicas and processes. The numbers that a row draws, as for augmentation,
// depend on (seed, epoch, row) alone: rows are the same for any number of workers, replicas and processes,
// and after a resume, which needs no more than the epoch and the step.
#pragma once

#include <torch/data/datasets/base.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/data/only_row.h>

namespace lockstep {

struct DataLoaderOptions {
  int64_t batch_rows = 1;  // of a global batch; the last one of an epoch may have fewer
  int rank = 0;            // of this replica in the world
  int world = 1;           // replicas of all processes
  uint64_t seed = 0;       // the same on all ranks
  int workers = 1;         // threads that read ahead; they run on the cores of the thread that calls start()
  int64_t ahead = 2;       // batches that are read ahead per worker
  std::vector<double> split = {};  // shares of the rows, one per rank, as Replicas has; empty: even ones
};

// The part of DataLoader that knows no types: the order, the workers, their random numbers and errors.
class DataLoaderSteps {
 public:
  struct Step {
    int64_t epoch = 0;
    int64_t number = 0;           // of the epoch, from 0
    int64_t batch_rows = 0;       // of the global batch
    std::vector<int64_t> rows{};  // row numbers of this rank, in order
  };

  // size: rows of the data set. Throws UsageError for values out of range.
  DataLoaderSteps(DataLoaderOptions options, std::optional<size_t> size);
  ~DataLoaderSteps();
  DataLoaderSteps(const DataLoaderSteps&) = delete;
  DataLoaderSteps& operator=(const DataLoaderSteps&) = delete;

  int64_t steps() const;

  // read(worker, row) reads one row of the step, and collate() follows when all are read: in one worker, for
  // each step in which this rank has rows.
  struct Read {
    std::function<void(int worker, int64_t row)> row;
    std::function<void()> collate;
  };
  void start(int64_t epoch, int64_t step, std::function<Read(int64_t step)> reader);
  std::optional<Step> next();

 private:
  struct Epoch;

  Step step_at(int64_t epoch, int64_t number, const std::vector<int64_t>& order) const;
  void post();

  const DataLoaderOptions options_;
  const int64_t rows_;
  std::unique_ptr<Epoch> epoch_;  // null before start()
};

// Dataset: a torch::data::datasets::Dataset, or what map() makes of one, that is copyable and has a size.
// A batch of Example<> (or TensorExample, or Tensor) rows is one Example<> whose tensors have a first
// dimension of rows, with a Stack at the end of its transforms and without one. Rows of any other type come
// as a vector.
//
// Each worker has a copy of the data set, and calls get_batch() for one row at a time: transforms see single
// rows, never a batch. get() must return new tensors for each row. Operations of torch draw numbers of (seed,
// epoch, row) there, in one thread per worker: the generator's seed is the first draw of SplitMix64(seed, {4,
// epoch, row}) (support/thread_random.h says for which operations). Other generators than torch's are not
// seeded.
//
// Not thread-safe: call it in the replica's thread.
template <class Dataset>
class DataLoader {
 public:
  static_assert(!Dataset::is_stateful,
                "DataLoader needs a data set of which each row can be read at any time");
  static_assert(std::same_as<typename Dataset::BatchRequestType, at::ArrayRef<size_t>>,
                "DataLoader needs a data set that takes row numbers, not a stream");

  using Row = decltype(detail::only_row(std::declval<typename Dataset::BatchType>()));
  using Batch = decltype(detail::collated(std::declval<std::vector<Row>>()));

  struct Step : DataLoaderSteps::Step {
    std::optional<Batch> batch{};  // none if this rank has no rows in the step
  };

  // Throws UsageError for values out of range, and for a data set that does not know its size.
  explicit DataLoader(Dataset data_set, DataLoaderOptions options = {})
      : copies_(static_cast<size_t>(options.workers > 0 ? options.workers : 0), data_set),
        steps_(options, data_set.size()) {}

  int64_t steps() const { return steps_.steps(); }  // of an epoch, the same on all ranks

  // Begins to read an epoch, 0 or later, from this step on, 0 .. steps(); rows of the steps before it are
  // not read. What was being read before is dropped. Throws UsageError for others, and MemoryError if the
  // system cannot start the workers.
  void start(int64_t epoch, int64_t step = 0) {
    auto read = std::make_shared<Results>();
    steps_.start(epoch, step, [this, read](int64_t number) { return reader_of(number, *read); });
    read_ = std::move(read);
  }

  // Waits for the next step of the epoch. nullopt after the last one. Throws UsageError before start(). An
  // exception of the data set comes as a DataError that names the row, with the exception nested in it, in
  // the step of that row. Each further call throws it again, until start(). The destructor ends the workers
  // after the rows that they read.
  std::optional<Step> next() {
    auto step = steps_.next();
    if (!step) return std::nullopt;
    Step result{std::move(*step)};
    if (!result.rows.empty()) {
      auto& slot = slot_of(*read_, result.number);
      result.batch = std::move(slot->batch);
      slot.reset();
    }
    return result;
  }

 private:
  struct Slot {
    std::vector<Row> rows;
    std::optional<Batch> batch;
  };
  using Results = std::vector<std::shared_ptr<Slot>>;  // by step; only the loop's thread touches the vector

  static std::shared_ptr<Slot>& slot_of(Results& results, int64_t step) {
    if (results.size() <= static_cast<size_t>(step)) results.resize(static_cast<size_t>(step) + 1);
    return results[static_cast<size_t>(step)];
  }

  DataLoaderSteps::Read reader_of(int64_t step, Results& results) {
    const auto slot = std::make_shared<Slot>();
    slot_of(results, step) = slot;
    return {.row =
                [this, slot](int worker, int64_t row) {
                  const auto index = static_cast<size_t>(row);
                  auto& data_set = copies_[static_cast<size_t>(worker)];
                  slot->rows.push_back(detail::only_row(data_set.get_batch(at::ArrayRef<size_t>(index))));
                },
            .collate = [slot] { slot->batch = detail::collated(std::move(slot->rows)); }};
  }

  std::vector<Dataset> copies_;    // one per worker
  std::shared_ptr<Results> read_;  // of the epoch
  DataLoaderSteps steps_;          // last: its workers use the others
};

}  // namespace lockstep
