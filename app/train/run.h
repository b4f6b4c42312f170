// The loop of a training run: epochs of steps, an evaluation after each epoch, the printed lines and the
// metrics.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/app/train/checkpoint/writer.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/live_run.h>
#include <lockstep/app/train/progress/progress.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/progress/step_intervals.h>
#include <lockstep/app/train/run_output.h>
#include <lockstep/app/train/step_agreement.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

// A loss was NaN or infinite.
class LossError : public NumericError {
 public:
  // step: of the run, from 1: the one that used or made such weights.
  LossError(const std::string& what, const std::string& hint, int64_t step)
      : NumericError(what, hint), step_(step) {}
  int64_t step() const { return step_; }

 private:
  int64_t step_;
};

class TrainRun {
 public:
  // resume: goes on from there; in other processes than the first only the pointer's presence counts. Keeps
  // references to all arguments but the clock and the outputs.
  TrainRun(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal,
           const RunOutputs& outputs, const RunState* resume = nullptr, SecondsClock clock = steady_seconds);

  // Throws after the current step: NumericError if the loss is not finite (and --on-nan did not help),
  // InterruptedError if a signal came, OutputError if standard output or the metrics cannot be written. All
  // processes throw these after the same step, whichever got the signal. Also throws what training throws.
  // The last line of the metrics always says how the run ended.
  RunReport run();

  // Valid after run() has returned or has thrown InterruptedError or OutputError.
  bool has_trained() const { return steps_done_ > 0; }

  // Returns true if there is nothing left to do. A resumed run may be complete before run(), which then
  // reports without losses what its checkpoint knows.
  bool complete() const { return progress_.is_finished(steps_done_, plan_.total_steps); }
  std::vector<NamedTensor> weights() { return trainer_.weights(); }  // in all processes or in none
  const Trace& trace() const { return trace_; }

 private:
  TrainerOptions trainer_options();

  RunReport run_epochs();
  RunReport finished_report();
  void add_weights_hash(RunReport& report);
  bool run_and_evaluate_epoch(RunReport& run);
  void record_failure(std::string_view status, std::string_view reason);

  // Epochs and steps count from 1.
  EpochReport run_epoch(int64_t epoch);
  bool line_due();
  void run_step(std::span<const int64_t> rows);
  void begin_intervals();
  void leave_out_first_step(bool recorded);
  void report_steps(int64_t epoch, int64_t step, bool recorded);
  void take_sums(int64_t epoch);
  void report_split();
  void evaluate(EpochReport& report);
  StepNews own_news() const;
  void stop_after_step(const StepNews& all, int64_t epoch, int64_t step);
  void stop_if_asked(const StepNews& all, const std::string& where) const;
  void restore(const RunState& state);
  void go_back(const LossError& error);
  RunState newest_state();
  RunState take_newest();
  StepRange steps_to_leave_out(int64_t bad) const;
  void save_after_epoch(double test_accuracy);
  void save_if_new();
  void save_stopped();
  void require_finite(const TrainState& state);
  void save_checkpoint(std::optional<double> test_accuracy = {});
  void print_curve();

  const TrainPlan& plan_;
  const TrainFlags& options_;
  const Terminal& terminal_;
  RunMetrics* const run_metrics_;        // of the run folder
  CheckpointWriter* const checkpoints_;  // null in other processes than the first
  LiveRun* const live_;                  // null: step lines, or no progress
  const bool step_lines_wanted_;
  const InterruptGuard interrupt_{"the current step"};
  RunOutput output_;
  Trace trace_;
  Trainer trainer_;
  StepAgreement agreement_;

  const SecondsClock clock_;
  LineTimer step_lines_;
  bool step_line_due_ = false;
  CheckpointSchedule schedule_;
  int64_t steps_done_ = 0;          // of the whole run
  int64_t resumed_steps_ = 0;       // of those, before the run was resumed or went back
  nlohmann::ordered_json changed_;  // settings that the checkpoint's run had otherwise; of process 0
  int times_gone_back_ = 0;
  double epoch_begin_ = 0;  // seconds of the clock, as if the epoch had had no break
  TrainProgress progress_;  // except what the intervals have summed since
  StepIntervals intervals_;
};

}  // namespace lockstep
