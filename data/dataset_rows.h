// A torch::data Dataset with its transforms as a source of batches, for a Trainer; data_loader.h feeds one to
// a loop of your own:
//
//   const auto train = dataset_rows(Photos(train_folder).map(RandomFlip()), {.seed = 1, .workers = 4});
//   Trainer trainer(factory, train, dataset_rows(Photos(test_folder), {.workers = 4}), options);
//   train_epochs(trainer, {.epochs = 10,
//                          .batch_size = 256,
//                          .order = [&](int64_t epoch) { return batch_order(/*seed=*/1, epoch, photos); }});
//
// The numbers that a row draws, as for augmentation, depend on (seed, epoch, row) alone: rows are the same
// for any number of workers, replicas and processes, and after a resume in the middle of an epoch.
#pragma once

#include <torch/data/datasets/base.h>
#include <torch/data/example.h>
#include <torch/types.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/data/only_row.h>
#include <lockstep/support/batch.h>
#include <lockstep/support/notice.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct DatasetRowsOptions {
  // Names, dtypes, shapes and roles of a row's tensors, in their order; -1 for a size that differs between
  // batches. Empty: those of row 0, as read in epoch 0, with the name "input", and of two tensors also
  // "target".
  BatchSpec spec = {};
  uint64_t seed = 0;  // the same in all processes, which a Trainer checks
  int workers = 1;    // threads that read, for each distinct device; 0: the replicas read their rows
  // Rows that workers of a device read before a batch asks for them; 0: any number. Batches read what is
  // missing themselves.
  int64_t most_ahead = 0;
  Notice notice = {};  // told once for each device: when half of its batches wait for their rows
  // For messages: "the training images", whose epochs count from 1 there. Empty: the data set, with epochs as
  // they are given.
  std::string name = {};
  bool evaluated = false;  // evaluations alone read these rows: messages name no epoch
};

namespace detail {

// Reads a row with a copy of the data set: its tensors.
using RowReader = std::function<std::vector<torch::Tensor>(int64_t row)>;

// Copies the data set.
using NewRowReader = std::function<RowReader()>;

SourceFactory dataset_sources(std::optional<size_t> size, NewRowReader new_reader,
                              DatasetRowsOptions options);

inline std::vector<torch::Tensor> tensors_of(torch::Tensor row) { return {std::move(row)}; }
inline std::vector<torch::Tensor> tensors_of(torch::data::TensorExample row) { return {std::move(row.data)}; }
inline std::vector<torch::Tensor> tensors_of(torch::data::Example<> row) {
  return {std::move(row.data), std::move(row.target)};
}
inline std::vector<torch::Tensor> tensors_of(std::vector<torch::Tensor> row) { return row; }

}  // namespace detail

// Returns a factory of sources that read a torch::data::datasets::Dataset, or what map() makes of one, that
// is copyable and has a size. It may end with a Stack or not. Rows are Example<>, TensorExample, Tensor, or a
// std::vector<torch::Tensor> for any number of them; a batch stacks their tensors, on the source's device.
//
// Rows that Trainer::will_need() has told are read ahead, which train_epochs() does one batch ahead. Others
// are read when a step asks for them, by its replica and all workers. Rows that were told and not asked for
// stay in memory until rows of two later epochs are told, with most_ahead until those of 64 later calls.
//
// Copies of the data set are in use at the same time, and each calls get_batch() for one row at a time:
// transforms see single rows, never a batch. get() must return new tensors for each row. Operations of torch
// draw numbers of (seed, epoch, row) there, in one thread: the generator's seed is the first draw of
// SplitMix64(seed, {4, epoch, row}) (support/thread_random.h says for which operations), as in a DataLoader.
// Other generators than torch's are not seeded. Evaluations read the rows of epoch 0. Gradients do not flow
// into the data set.
//
// Throws UsageError for workers and most_ahead below 0, and for a data set that does not know its size; the
// factory, without a spec, UsageError for rows of other than one or two tensors and for a data set without
// rows. Workers start when rows are told or asked for the first time; where the system starts none, the
// notice is told, and each batch reads its rows itself. An exception of the data set, and a row that is not
// as the spec says, end the step with a DataError that names the row, with the exception nested in it; so do
// rows of a batch that have different sizes.
//
// On a GPU a step waits for the one before it, since the host reads which rows it asks for; the copy of the
// batch is queued.
template <class Dataset>
SourceFactory dataset_rows(Dataset data_set, DatasetRowsOptions options = {}) {
  static_assert(!Dataset::is_stateful,
                "dataset_rows() needs a data set of which each row can be read at any time");
  static_assert(std::same_as<typename Dataset::BatchRequestType, at::ArrayRef<size_t>>,
                "dataset_rows() needs a data set that takes row numbers, not a stream");
  using Row = decltype(detail::only_row(std::declval<typename Dataset::BatchType>()));
  static_assert(
      requires(Row row) { detail::tensors_of(std::move(row)); },
      "dataset_rows() needs rows of tensors: map() others to std::vector<torch::Tensor>");
  const auto size = data_set.size();
  const auto original = std::make_shared<const Dataset>(std::move(data_set));
  const auto new_reader = [original]() -> detail::RowReader {
    return [own = Dataset(*original)](int64_t row) mutable {
      const auto index = static_cast<size_t>(row);
      return detail::tensors_of(detail::only_row(own.get_batch(at::ArrayRef<size_t>(index))));
    };
  };
  return detail::dataset_sources(size, new_reader, std::move(options));
}

}  // namespace lockstep
