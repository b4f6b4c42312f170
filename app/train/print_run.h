// The lines that train prints before and after the steps of a run.
#pragma once

#include <cstdint>

#include <lockstep/app/run_files/run_log.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/report.h>

namespace lockstep {

// Returns true if the metrics take the place of the text.
bool metrics_on_stdout(const TrainFlags& options);

// These print in process 0, unless the flags make the run quiet. The log, which may be null, gets all. They
// throw OutputError.

// The plan, and warnings about it.
void print_plan(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal, RunLog* log);

// The last lines of a run.
void print_result(const RunReport& report, const TrainPlan& plan, const TrainFlags& options, RunLog* log);

// The lines of a resumed run that had nothing left to do.
void print_finished(const RunReport& report, const TrainPlan& plan, const TrainFlags& options, RunLog* log);

}  // namespace lockstep
