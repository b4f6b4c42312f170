// A run's folder, its files and checkpoints, from --output, --checkpoint-every and --resume.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <lockstep/app/plot/run_plots.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/run_files/run_log.h>
#include <lockstep/app/run_files/run_metrics.h>
#include <lockstep/app/train/checkpoint/folder_lock.h>
#include <lockstep/app/train/checkpoint/run_folder.h>
#include <lockstep/app/train/checkpoint/writer.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/parallel/world/world.h>
#include <lockstep/support/stopwatch.h>

namespace lockstep {

// Returns true if the flags ask for a folder, in any process.
bool wants_folder(const TrainFlags& options);

// The kept run of process 0; in the others it stays empty.
struct KeptRun {
  std::optional<FoundCheckpoint> found;  // to go on from
  std::optional<FolderLock> lock;        // from begin() on
  std::unique_ptr<RunLog> log;           // from open() on
  std::unique_ptr<RunMetrics> metrics;   // these from begin() on
  std::unique_ptr<RunPlots> plots;
  std::unique_ptr<CheckpointWriter> checkpoints;
  bool reuses_folder = false;   // a folder without a whole checkpoint may be used again
  bool rescales_steps = false;  // another batch size than the checkpoint's
  // From begin() on: of a finished run, whose folder's metrics need no end any more.
  bool metrics_finished = false;

  // Reads the checkpoint that --resume names. Clears options.resume if there is nothing to go on from. Writes
  // nothing. Throws UsageError or WeightsError.
  // place: after a restart by the launcher, the run goes on that it has begun.
  void find(TrainFlags& options, const World& place);

  // Does what find() does, if that was not called, and completes the options: the interval's default, batch
  // size and rate of the checkpoint. Writes nothing. Throws UsageError, WeightsError or OutputError.
  void open(TrainFlags& options, const World& place);

  // The folder that the run will write to, from open() on; empty where it has none, or a new numbered one.
  std::optional<std::string> folder(const TrainFlags& options) const;

  // Returns true if the run's checkpoints need no memory where it is short. Leaves nothing behind.
  bool has_checkpoint_files(const TrainFlags& options) const;

  void fit_checkpoint(const TrainPlan& plan, const TrainFlags& options);
  void find_after_restart(TrainFlags& options, const std::string& launch);

  // Throws WeightsError if this run would train differently from the checkpoint's. With another batch size it
  // recounts the checkpoint's steps, and throws UsageError if --output names that checkpoint's run folder, or
  // none while the launcher may start the run again. Throws OutputError if the folder cannot be written to.
  void fit_plan(const TrainPlan& plan, const TrainFlags& options);

  // Makes the folder, or reuses the checkpoint's. Prints the folder and the checkpoint. Throws OutputError.
  void begin(const TrainPlan& plan, const TrainFlags& options);

  // Queues a checkpoint of this state, as CheckpointWriter::save(), and completes it with the configuration
  // and the sizes of the metrics. Throws OutputError.
  void save(RunState state, const TrainPlan& plan, const TrainFlags& options, std::optional<double> score,
            Stopwatch began);

  // A collective of the run's processes, from begin() on: the state of the newest checkpoint, to which the
  // metrics are cut. In other processes than the first it is empty: they get it by loading. Throws
  // WeightsError if no checkpoint is whole, and in all processes what fails in process 0.
  RunState newest_state(const TrainWorld& world);

  // Keeps what the run goes on from in its new folder.
  void save_first(const TrainPlan& plan, const TrainFlags& options);

  // Says from where the run goes on: "resumed from runs/a-0001/checkpoints/step-00000010 (10 of 15 steps
  // done)". resumed: its first word.
  void print_found(const char* resumed, const TrainPlan& plan, bool quiet) const;

  void print_beginning(const RunFolder& run, const TrainPlan& plan, const TrainFlags& options) const;

  // Waits for the plots and the last checkpoint, and says where that is. Throws OutputError.
  void finish(bool quiet);
};

}  // namespace lockstep
