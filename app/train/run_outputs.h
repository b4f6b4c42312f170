// The files of a run that flags name, and its folder.
#pragma once

#include <optional>

#include <lockstep/app/files/line_file.h>
#include <lockstep/app/train/checkpoint/kept_run.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/files/atomic_file.h>

namespace lockstep {

// Process 0 has them. In the others, and where nothing was asked for, all stay empty.
struct RunOutputs {
  std::optional<LineFile> metrics;  // of --metrics
  std::optional<AtomicFile> trace;
  KeptRun kept;

  // Opens the files before any work: a path that cannot be written stops the run at once. A dry run opens
  // them too, and leaves nothing behind. Throws UsageError for two flags that name one file, and as LineFile,
  // AtomicFile, check_can_save() and KeptRun::open() do.
  void open(TrainFlags& flags, const World& place);
};

}  // namespace lockstep
