// Writes the checkpoints of a run in a thread of its own, while training goes on.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <optional>

#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/plan/on_error.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {

// The cost of a checkpoint.
struct CheckpointCost {
  int64_t step = 0;
  int64_t tensor_bytes = 0;
  double waited = 0;  // seconds in which the run took no step
  double wrote = 0;   // seconds of the writer's thread
};

struct WriterOptions {
  int64_t keep = 3;                           // so many of the newest checkpoints stay, and the best one
  OnSaveError on_error = OnSaveError::kStop;  // kContinue turns each OutputError below into a warning
  // Called in the writer's thread before and after a checkpoint; may be empty. `before` may throw
  // OutputError.
  std::function<void()> before = {};
  std::function<void(const CheckpointCost&)> written = {};
};

// Not thread-safe. Its thread has low priority.
class CheckpointWriter {
 public:
  CheckpointWriter(RunFolder run, WriterOptions options);
  ~CheckpointWriter();  // waits for the one under way

  // Waits for the one under way, then queues this one. score: if the model was evaluated at this
  // step. began: when the run began to wait for this checkpoint. Throws OutputError if the one before could
  // not be written; this one then is queued all the same.
  void save(RunState state, std::optional<double> score, Stopwatch began = {});

  // Waits for the one under way. Throws OutputError if it could not be written.
  void finish();

  const RunFolder& run() const { return run_; }
  int64_t written() const { return written_; }  // after finish()

 private:
  void write(RunState state, std::optional<double> score, double waited);
  void remove_old() const;

  const RunFolder run_;
  const WriterOptions options_;
  int64_t written_ = 0;
  std::future<void> under_way_;
  TaskThread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
