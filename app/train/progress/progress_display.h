// The choice of --progress.
#pragma once

#include <memory>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/live_run.h>

namespace lockstep {

// Returns true if the metrics take the place of the text.
bool metrics_on_stdout(const TrainFlags& options);

// For process 0. Throws UsageError for a bar without a terminal on standard error, and for plain lines beside
// metrics on standard output.
void check_progress_display(const TrainFlags& options);

// The live display of a run; null: none. `auto` shows it in process 0 if lines and errors both go to a
// terminal. Keeps a reference to the plan.
std::unique_ptr<LiveRun> live_display(const TrainPlan& plan, const TrainFlags& options, ColorMode color,
                                      SecondsClock clock);

}  // namespace lockstep
