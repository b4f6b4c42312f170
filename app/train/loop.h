// The loop of a training run: epochs of steps, and an evaluation after each epoch.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/app/train/going_back.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/progress/run_position.h>
#include <lockstep/app/train/progress/step_intervals.h>
#include <lockstep/app/train/recorder.h>
#include <lockstep/app/train/step_agreement.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

// Knows epochs and steps, and no files: a Recorder is told all that happens. Every process of a run has one,
// and all make the same calls.
class TrainLoop {
 public:
  // resume: goes on from there; in other processes than the first only that there is one counts. Keeps
  // references to the plan, the flags and the recorder.
  TrainLoop(const TrainPlan& plan, const TrainFlags& flags, Recorder& record,
            const std::optional<RunState>& resume = std::nullopt);

  // Throws after the current step: LossError if the loss is not finite and going back did not help,
  // InterruptedError if a signal came, OutputError if an output cannot be written. All processes throw these
  // after the same step, whichever got the signal. Also throws what training throws. The report of a
  // resumed run that has nothing left to do says what its checkpoint knows.
  RunReport run();

  // These are valid after run() has returned or has thrown InterruptedError or OutputError. The first two are
  // collectives.
  void
  save_if_new();  // unless this step has its checkpoint. Throws LossError for weights that are not finite
  std::vector<NamedTensor> weights() { return trainer_.averaged_weights(); }  // as they are tested
  bool has_average();                                 // else weights() are the trained ones
  int64_t steps_done() const { return steps_done_; }  // of the whole run
  const Trace& trace() const { return trace_; }

 private:
  // Returns true if there is nothing left to do.
  bool is_finished() const {
    return has_stopped_early() || position_.is_finished(steps_done_, plan_.total_steps);
  }
  // Between two epochs: the validation has not become better for long enough.
  bool has_stopped_early() const {
    return plan_.patience && position_.step == 0 && position_.epochs_since_best() >= *plan_.patience;
  }

  RunReport saved_report() const;
  void restore(const RunState& state);
  void go_back(const LossError& error);

  bool run_epoch(RunReport& run);
  EpochReport evaluated_epoch();
  void begin_next_epoch(double seconds, double lr);
  void run_step(std::span<const int64_t> rows);
  void after_step(bool last);
  RowSums evaluate(const char* test_set);
  double observe_validation(const EpochReport& report);
  void require_trained();
  void take_sums();
  void take_times();

  void save(std::optional<double> score = {});
  void require_finite(const TrainState& state) const;
  StepNews own_news() const;
  void stop_if_asked(const StepNews& all, const std::string& where) const;

  const TrainPlan& plan_;
  const TrainFlags& flags_;
  Recorder& record_;
  Trace trace_;
  Trainer trainer_;
  StepAgreement agreement_;
  CheckpointSchedule schedule_;
  GoingBack going_back_;
  int64_t steps_done_ = 0;          // of the whole run
  int64_t resumed_steps_ = 0;       // of those, before the run was resumed or went back
  nlohmann::ordered_json changed_;  // settings that the checkpoint's run had otherwise; of process 0
  RunPosition position_;            // except what the intervals have summed since
  StepIntervals intervals_;
};

}  // namespace lockstep
