// Where the lines and events of a run go.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include <lockstep/app/files/line_file.h>
#include <lockstep/app/plot/run_plots.h>
#include <lockstep/app/run_files/run_log.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/app/train/checkpoint/writer.h>

namespace lockstep {

class LiveRun;

// Where a run's results go. Each may be null; the files and the writer are process 0's.
struct RunOutputs {
  LineFile* metrics = nullptr;        // of --metrics
  RunMetrics* run_metrics = nullptr;  // these are of the run folder
  bool run_metrics_finished = false;  // these need no event that ends a whole run
  RunPlots* plots = nullptr;
  RunLog* log = nullptr;
  CheckpointWriter* checkpoints = nullptr;
  std::optional<CheckpointInterval> every = {};  // the same in all processes; empty: no checkpoints
  LiveRun* live = nullptr;                       // shows the progress instead of step lines
};

// Writes lines for people to standard output and the log, and events to the other files. An output that fails
// does not throw: the run ends its step, asks failed() and keeps its weights. Not thread-safe.
class RunOutput {
 public:
  // quiet: prints no lines. step_lines: prints those that say how far a run is. The log gets all lines.
  RunOutput(bool quiet, bool step_lines, const RunOutputs& to)
      : quiet_(quiet), step_lines_(step_lines), to_(to) {}

  // Returns true if step lines go anywhere.
  bool takes_step_lines() const { return step_lines_ || to_.log; }

  void print(const std::string& line) { print(line, !quiet_); }
  void print_step(const std::string& line) { print(line, step_lines_); }
  void record(const nlohmann::ordered_json& event);

  // Records the event that metrics begin with. Those of a run folder that goes on have one; they get the
  // second event, if it is not null.
  void record_plan(const nlohmann::ordered_json& plan, const nlohmann::ordered_json& resumed);

  // Records the end of a run that has nothing left to do. Its folder's metrics may have one.
  void record_end(const nlohmann::ordered_json& end);

  // Calls write(), and keeps the OutputError that it throws.
  void attempt(const std::function<void()>& write);

  bool failed() const { return first_error_ != nullptr; }

  // Throws the first OutputError, if there was one.
  void throw_if_failed() const;

 private:
  void print(const std::string& line, bool shown);
  void record(const nlohmann::ordered_json& event, bool in_run_metrics);

  const bool quiet_;
  const bool step_lines_;
  const RunOutputs to_;
  std::exception_ptr first_error_;
};

}  // namespace lockstep
