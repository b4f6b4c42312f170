// The agreement of a run's processes between two steps, such as to stop.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <future>
#include <memory>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/process_group.h>

namespace lockstep {

// Votes on some questions, one bit each. The votes of all processes together have a bit where any has it.
//
// Every process must stop after the same step, or they would wait for each other for ever. A process
// therefore tells the others its votes at the end of a step, and all act on them at the end of the next one:
// by then the sum has travelled, and no step waits for it. Alone, a process acts at once.
//
// All processes make the same calls in the same order. Not thread-safe.
class StepVotes {
 public:
  // group: null for a process alone. questions: at most 64. Throws as open_channel() does.
  StepVotes(ProcessGroup* group, int questions);

  bool single_process() const { return channel_ == nullptr; }

  // At the end of a step: sends `own`, and returns what all processes sent at the end of the previous step (0
  // right after agree_now()). Alone: returns `own`. Throws PeerError when a process is lost.
  uint64_t after_step(uint64_t own);

  // Sends `own` and waits for the votes of all processes. Returns them together with those not returned
  // before. Call it before and after work that has no steps.
  uint64_t agree_now(uint64_t own);

  // Votes on these questions that were sent before no longer count.
  void withdraw(uint64_t questions);

 private:
  uint64_t read();
  void tell(uint64_t own);

  const int questions_;
  std::unique_ptr<Channel> channel_;  // null: alone
  torch::Tensor told_;                // (questions) int64; the sum over the processes when pending_ is done
  std::future<void> pending_;         // valid while told_ has not been read
  uint64_t withdrawn_ = 0;            // since told_ was told
};

}  // namespace lockstep
