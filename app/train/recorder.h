// All that a run tells: lines and the live display for people, train.log, the metrics, the plots and the
// checkpoints.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/evaluation_notice.h>
#include <lockstep/app/train/progress/live_run.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/progress/run_position.h>
#include <lockstep/app/train/progress/step_intervals.h>
#include <lockstep/app/train/run_outputs.h>

namespace lockstep {

// Every process has one; only that of process 0 prints and writes. From begin() to finished() an output that
// fails does not throw: the run ends its step, asks has_failed() and keeps its weights. Not thread-safe.
class Recorder {
 public:
  // Keeps references to the plan, the flags and the outputs. color: of the terminal.
  Recorder(const TrainPlan& plan, const TrainFlags& flags, ColorMode color, RunOutputs& outputs,
           SecondsClock clock = steady_seconds);

  double now() const { return clock_(); }

  // Prints the plan and warnings about it. Throws OutputError.
  void plan() const;

  // The run begins, or goes on after so many steps. changed: settings that the run had otherwise before.
  void begin(const RunPosition& position, int64_t steps_done, const nlohmann::ordered_json& changed);

  // An epoch begins, or goes on after a break.
  void begin_epoch(const RunPosition& position, int64_t steps_done);

  // Returns true if it is time for a step line. A line, or a drawing, waits for the step.
  bool is_line_due();

  // Shows the steps done and, if `recorded`, adds a line to the metrics. Each has the means of its own
  // interval, and is missing if all steps of that were left out.
  void step(StepIntervals& intervals, const RunPosition& position, int64_t steps_done, bool recorded);

  // `--split auto` has settled on these shares.
  void split(int64_t steps_done, const std::vector<double>& shares);

  // The epoch's steps are done, and the evaluation begins. evaluation(): after each block.
  void trained(const StepInterval& epoch, int64_t steps_done);
  void evaluation(int64_t rows_done, int64_t rows);

  // The epoch has been evaluated. accuracy: after each epoch.
  void epoch(const EpochReport& report, std::span<const double> accuracy);

  // Waits for the checkpoint under way, so that memory holds one at most, and queues one of the state that
  // `state` returns. Every process calls `state`, with the memory for its tensors. score:
  // RunPosition::last_score(), if the model was evaluated at this step.
  void checkpoint(const std::function<RunState(const TensorAllocator&)>& state, std::optional<double> score);

  // A collective: the state of the newest checkpoint, as KeptRun::newest_state().
  RunState newest_state();

  // --patience was over after the last epoch.
  void stopped_early(const RunPosition& position);

  // The run has gone back so far. range: what it leaves out now; empty: that was in vain.
  void went_back(int64_t steps_done, const std::vector<StepRange>& left_out,
                 const std::optional<StepRange>& range, std::string_view reason);

  // The last event says how the run has ended.
  void finished(const RunReport& report);
  void failed(std::string_view status, std::string_view reason, int64_t steps_done);

  // Prints the last lines of a run. Throws OutputError.
  void result(const RunReport& report) const;

  bool has_failed() const { return first_error_ != nullptr; }
  void throw_if_failed() const;  // throws the first OutputError, if there was one

 private:
  bool wants_step_lines() const;
  void print(const std::string& line, bool shown);
  void event(const nlohmann::ordered_json& event, bool in_folder = true);
  void attempt(const std::function<void()>& write);
  void print_curve();

  const TrainPlan& plan_;
  const TrainFlags& flags_;
  RunOutputs& to_;
  const Terminal terminal_;
  const ColorMode color_;
  const SecondsClock clock_;
  std::unique_ptr<LiveRun> live_;  // from begin() on; null: step lines, or no progress
  std::optional<EvaluationNotice> notice_;
  LineTimer step_lines_;
  bool step_line_due_ = false;
  std::vector<double> accuracy_;  // after each epoch
  std::exception_ptr first_error_;
  bool has_ended_ = false;  // the metrics have their last line
};

}  // namespace lockstep
