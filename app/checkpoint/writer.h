// Writes the checkpoints of a run in a thread of its own, while training goes on.
#pragma once

#include <cstdint>
#include <exception>
#include <future>
#include <optional>

#include <lockstep/app/checkpoint/on_error.h>
#include <lockstep/app/checkpoint/run_folder.h>
#include <lockstep/parallel/threads/task_thread.h>

namespace lockstep {

// Not thread-safe. Its thread has low priority.
class CheckpointWriter {
 public:
  // keep: so many of the newest checkpoints stay, and the best one. on_error: kContinue turns each
  // OutputError below into a warning.
  CheckpointWriter(RunFolder run, int64_t keep, OnSaveError on_error = OnSaveError::kStop);
  ~CheckpointWriter();  // waits for the one under way

  // Waits for the one under way, then queues this one. test_accuracy: if the model was evaluated at this
  // step. Throws OutputError if the one before could not be written; this one then is queued all the same.
  void save(RunState state, std::optional<double> test_accuracy);

  // Waits for the one under way. Throws OutputError if it could not be written.
  void finish();

  const RunFolder& run() const { return run_; }
  int64_t written() const { return written_; }  // after finish()

 private:
  void write(RunState state, std::optional<double> test_accuracy);
  void remove_old() const;

  const RunFolder run_;
  const int64_t keep_;
  const OnSaveError on_error_;
  int64_t written_ = 0;
  std::future<void> under_way_;
  TaskThread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
