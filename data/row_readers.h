// The copies of a data set that the threads of one source read with.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include <lockstep/data/dataset_rows.h>

namespace lockstep {

// Reads the data set with copies of it, by any number of threads.
class RowReaders {
 public:
  explicit RowReaders(detail::NewRowReader new_reader) : new_reader_(std::move(new_reader)) {}

  detail::RowReader take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return new_reader_();
    auto reader = std::move(idle_.back());
    idle_.pop_back();
    return reader;
  }

  void give_back(detail::RowReader reader) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(reader));
  }

 private:
  const detail::NewRowReader new_reader_;
  std::mutex mutex_;
  std::vector<detail::RowReader> idle_;
};

}  // namespace lockstep
