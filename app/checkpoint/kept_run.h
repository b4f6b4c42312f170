// A run's folder, its metrics and checkpoints, from --output, --checkpoint-every and --resume.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <lockstep/app/checkpoint/run_folder.h>
#include <lockstep/app/checkpoint/writer.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/plan.h>

namespace lockstep {

// Of process 0; in the others it stays empty.
struct KeptRun {
  std::optional<FoundCheckpoint> found;  // to go on from
  std::optional<LineFile> metrics;
  std::optional<CheckpointWriter> checkpoints;
  bool reuses_folder = false;  // a folder without a whole checkpoint may be used again

  // Reads the checkpoint that --resume names, and completes the options: the interval's default, batch size
  // and rate of the checkpoint. Clears options.resume if there is nothing to go on from. Writes nothing.
  // Throws UsageError, WeightsError or OutputError.
  // restart: the launcher has started all processes again. Then the run that has the newest folder goes on.
  void open(TrainFlags& options, bool restart);

  // Throws WeightsError if this run would not train as the checkpoint's.
  void check_same_run(const TrainPlan& plan, const TrainFlags& options) const;

  // Makes the folder, or goes on in the checkpoint's. Tells both. Throws OutputError.
  void begin(const TrainPlan& plan, const TrainFlags& options);

  // Waits for the last checkpoint, and says where it is. Throws OutputError.
  void finish(const std::function<void(const std::string&)>& say);
};

}  // namespace lockstep
