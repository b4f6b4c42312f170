// A training run from its first step to the files that it leaves.
#pragma once

#include <lockstep/app/train/checkpoint/contents.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/recorder.h>
#include <lockstep/app/train/run_outputs.h>

namespace lockstep {

// Runs a TrainLoop to its end. However it ends once the trainer is built, the metrics' last line and the log
// say so. Then keeps weights, trace and checkpoints of a run that is done, or was stopped by a signal or by
// an output that cannot be written. A file that fails does not keep the others from being written. Throws the
// first error: the one that has ended the run, else that of a file that is kept; later ones are warnings.
// MemoryError as out_of_memory().
// resume: as of TrainLoop.
RunReport run_and_keep(const TrainPlan& plan, const TrainFlags& flags, Recorder& record, RunOutputs& outputs,
                       std::optional<RunState> resume = std::nullopt);

// The same for a run that prints and keeps nothing.
RunReport run_silently(const TrainPlan& plan, TrainFlags flags);

}  // namespace lockstep
