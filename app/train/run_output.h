// Where the lines and events of a run go.
#pragma once

#include <exception>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include <lockstep/app/checkpoint/interval.h>
#include <lockstep/app/checkpoint/writer.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/run_files/run_log.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/run_files/run_plots.h>

namespace lockstep {

// Where a run's results go. Each may be null; the files and the writer are process 0's.
struct RunOutputs {
  LineFile* metrics = nullptr;        // of --metrics
  RunMetrics* run_metrics = nullptr;  // these are of the run folder
  RunPlots* plots = nullptr;
  RunLog* log = nullptr;
  CheckpointWriter* checkpoints = nullptr;
  std::optional<CheckpointInterval> every = {};  // the same in all processes; empty: no checkpoints
};

// Writes lines for people to standard output and the log, and events to the other files. An output that fails
// does not throw: the run ends its step, asks failed() and keeps its weights. Not thread-safe.
class RunOutput {
 public:
  // quiet: prints no lines; the log gets them all the same.
  RunOutput(bool quiet, const RunOutputs& to) : quiet_(quiet), to_(to) {}

  // Whether anybody sees printed lines.
  bool shows_lines() const { return !quiet_ || to_.log; }

  void print(const std::string& line);
  void record(const nlohmann::ordered_json& event);

  // Calls write(), and keeps the OutputError that it throws.
  void attempt(const std::function<void()>& write);

  bool failed() const { return first_error_ != nullptr; }

  // Throws the first OutputError, if there was one.
  void throw_if_failed() const;

 private:
  const bool quiet_;
  const RunOutputs to_;
  std::exception_ptr first_error_;
};

}  // namespace lockstep
