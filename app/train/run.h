// The loop of a training run: epochs of steps, an evaluation after each epoch, the printed lines and the
// metrics.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/app/files/line_file.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/line_timer.h>
#include <lockstep/app/train/plan.h>
#include <lockstep/app/train/report.h>
#include <lockstep/app/train/step_agreement.h>
#include <lockstep/parallel/timing/trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {

class TrainRun {
 public:
  // `metrics` may be null. Keeps references to all arguments but the clock.
  TrainRun(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal, LineFile* metrics,
           SecondsClock clock = steady_seconds);

  // Throws after the current step: NumericError if the loss is not finite, InterruptedError if a signal
  // came, OutputError if standard output or the metrics cannot be written. Of several processes all throw
  // these after the same step, whichever of them got the signal. Also throws what training throws. The last
  // line of the metrics always says how the run ended.
  RunReport run();

  // Valid after run() has returned or has thrown InterruptedError or OutputError.
  bool has_trained() const { return steps_done_ > 0; }
  std::vector<NamedTensor> weights() { return trainer_.weights(); }  // in all processes or in none
  const Trace& trace() const { return trace_; }

 private:
  TrainerOptions trainer_options();

  RunReport run_epochs();
  void record_failure(std::string_view status, std::string_view reason);

  // Epochs and steps count from 1.
  EpochReport run_epoch(int64_t epoch);
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
  void show_curve();
  void print(const std::string& line);
  void record(const std::string& json);
  // Calls write(). If that throws OutputError, the run stops after the current step and keeps its weights.
  void deliver(const std::function<void()>& write);

  const TrainPlan& plan_;
  const TrainFlags& options_;
  const Terminal& terminal_;
  LineFile* metrics_;
  const InterruptGuard interrupt_{"the current step"};
  std::exception_ptr failed_output_;  // the first OutputError
  Trace trace_;
  Trainer trainer_;
  StepAgreement agreement_;

  const SecondsClock clock_;
  LineTimer step_lines_;
  int64_t steps_done_ = 0;        // of the whole run
  StepInterval epoch_;            // since the epoch's begin
  StepInterval printed_;          // since the last printed step line
  StepInterval recorded_;         // since the last step line of the metrics: one every --log-every steps
  std::vector<double> accuracy_;  // on the test set, after each epoch
};

}  // namespace lockstep
