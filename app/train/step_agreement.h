// The agreement of a run's processes between two steps: whether to stop, and whether to print a line.
#pragma once

#include <optional>

#include <lockstep/parallel/collectives/step_votes.h>

namespace lockstep {

// The news of one process, or of all: then it has what any of them has.
struct StepNews {
  std::optional<int> signal = {};  // SIGHUP, SIGINT or SIGTERM has come
  bool output_failed = false;      // standard output or the metrics cannot be written
  bool line_due = false;           // it is time for a step line
  bool checkpoint_due = false;     // it is time for a checkpoint
};

// StepVotes about news. Every process must also compute the sums of a step line after the same step.
class StepAgreement {
 public:
  // group: null for a process alone. Throws as open_channel() does.
  explicit StepAgreement(ProcessGroup* group);

  bool single_process() const { return votes_.single_process(); }

  // At the end of a step: sends `own`, and returns the news that all processes sent at the end of the
  // previous step (none right after agree_now()). Alone: returns `own`. Throws PeerError when a process is
  // lost.
  StepNews after_step(const StepNews& own);

  // Sends `own` and waits for the news of all processes. Returns it together with news not returned before.
  // Where signals differ, all processes get the same one. Call it before and after work that has no steps.
  StepNews agree_now(const StepNews& own);

  // Call it when a line was printed. A line_due that was sent before no longer counts.
  void line_printed();

  // The same for a checkpoint and checkpoint_due.
  void checkpoint_made();

 private:
  StepVotes votes_;
};

}  // namespace lockstep
