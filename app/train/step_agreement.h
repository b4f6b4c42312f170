// The agreement of a run's processes between two steps: whether to stop, and whether to print a line.
#pragma once

#include <torch/types.h>

#include <future>
#include <memory>
#include <optional>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>

namespace lockstep {

// The news of one process, or of all: then it has what any of them has.
struct StepNews {
  std::optional<int> signal = {};  // SIGHUP, SIGINT or SIGTERM has come
  bool output_failed = false;      // standard output or the metrics cannot be written
  bool line_due = false;           // it is time for a step line
  bool checkpoint_due = false;     // it is time for a checkpoint
};

// Every process must stop after the same step, and compute the sums of a step line after the same step, or
// they would wait for each other for ever. A process therefore tells the others its news at the end of a
// step, and all act on it at the end of the next one: by then the sum has travelled, and no step waits for
// it. Alone, a process acts at once.
//
// All processes make the same calls in the same order. Not thread-safe.
class StepAgreement {
 public:
  // group: null for a process alone. Throws as open_channel() does.
  explicit StepAgreement(ProcessGroup* group);

  bool single_process() const { return channel_ == nullptr; }

  // At the end of a step: sends `own`, and returns the news that all processes sent at the end of the
  // previous step (none right after agree_now()). Alone: returns `own`. Throws PeerError when a process is
  // lost.
  StepNews after_step(const StepNews& own);

  // Sends `own` and waits for the news of all processes. Returns it together with news not returned before.
  // Call it before and after work that has no steps.
  StepNews agree_now(const StepNews& own);

  // Call it when a line was printed. A line_due that was sent before no longer counts.
  void line_printed();

  // The same for a checkpoint and checkpoint_due.
  void checkpoint_made();

 private:
  StepNews read();
  void tell(const StepNews& own);

  std::unique_ptr<Channel> channel_;  // null: alone
  torch::Tensor told_;                // (slots) int64; the sum over the processes when pending_ is done
  std::future<void> pending_;         // valid while told_ has not been read
  bool line_printed_ = false;         // since told_ was told
  bool checkpoint_made_ = false;      // the same
};

}  // namespace lockstep
