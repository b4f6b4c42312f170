// Keeps account of the rows of a source: who reads them, and how many ahead of the batches that ask.
#pragma once

#include <torch/types.h>

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <stop_token>
#include <utility>
#include <vector>

namespace lockstep {

// A row that was told or is asked for. Once it is done, its tensors and its error do not change.
struct PendingRow {
  enum class State { kQueued, kBegun, kDone };

  int64_t epoch = 0;
  int64_t number = 0;
  State state = State::kQueued;
  int64_t requests = 0;   // told, and not yet asked for
  int64_t told = 0;       // the call that told it last
  bool asked = false;     // a batch waits for it, or has it
  bool is_ahead = false;  // it takes up room
  std::vector<torch::Tensor> tensors = {};
  std::exception_ptr error = {};
};
using PendingRows = std::vector<std::shared_ptr<PendingRow>>;

// Any number of threads tell, take and read rows. Nobody who takes rows waits for room: it reads those that
// nobody has begun, so full memory never stops it.
class RowsAhead {
 public:
  // most: rows that are read before a batch asks for them; 0: any number.
  explicit RowsAhead(int64_t most) : most_(most) {}

  // Notes rows 0 .. size - 1 that batches will ask for, and returns those that nobody reads yet. Others are
  // ignored. Forgets rows that were told for epochs before this one and the one told before it.
  PendingRows tell(std::span<const int64_t> rows, int64_t epoch, int64_t size);

  // Returns the rows of a batch, each as often as it is asked for, and in `unread` those that nobody was told
  // of. With a most number, forgets rows that were told long before these: their batches came without them.
  PendingRows take(std::span<const int64_t> numbers, int64_t epoch, PendingRows& unread);

  bool any_queued(const PendingRows& rows) const;

  // These return true for the one thread that is to read the row, which calls end() then. begin_ahead()
  // waits until there is room or a batch asks for the row, and returns false when it is told to stop.
  bool begin(PendingRow& row);
  bool begin_ahead(PendingRow& row, const std::stop_token& stop);
  void end(PendingRow& row);

  // Waits until the rows are read. Throws the error of the first one that has one.
  void wait_for(const PendingRows& rows);

  // Returns true once: when half of the last batches, or more, came before the rows that were told for them
  // were read.
  bool falls_behind();

 private:
  void forget(const std::shared_ptr<PendingRow>& row);
  void forget_told_before(int64_t told);
  void count_batch(const PendingRows& told);

  const int64_t most_;
  mutable std::mutex mutex_;  // of all that follows, and of the state of rows
  std::map<std::pair<int64_t, int64_t>, std::shared_ptr<PendingRow>> pending_;  // by epoch and row
  int64_t newest_epoch_ = 0;                                                    // the last one that was told
  int64_t tells_ = 0;
  int64_t ahead_ = 0;  // rows that take up room
  int batches_ = 0, late_batches_ = 0;
  bool behind_ = false, said_ = false;
  std::condition_variable done_;
  std::condition_variable_any room_;
};

}  // namespace lockstep
