// The folder of one training run.
//
//   runs/lenet-scratch-0001/
//     metrics.jsonl ...       run_files/run_metrics.h
//     train.log               run_files/run_log.h
//     env.json                command, machine and versions of the first start
//     config.toml             train --config of it repeats the run
//     launched_by             whose restarts may go on here: World::launch
//     plots/                  plot/run_plots.h
//     checkpoints/
//       step-00000235/        data/checkpoint.h, contents.h
//       last -> step-...      links
//       best -> step-...      of the highest test accuracy, with rows that are held out of theirs
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/train/checkpoint/contents.h>

namespace lockstep {

// The links in the folder of checkpoints.
inline constexpr const char* kLastLink = "last";
inline constexpr const char* kBestLink = "best";

class RunFolder {
 public:
  // An empty path is the current folder.
  explicit RunFolder(std::filesystem::path path) : path_(path.empty() ? "." : std::move(path)) {}

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path log() const { return path_ / "train.log"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }
  std::filesystem::path checkpoint(int64_t step) const;

  // The steps of its checkpoints, whole or damaged, in order.
  std::vector<int64_t> steps() const;

  // RunPosition::last_score() of the checkpoint that `best` names; nothing if there is none that can be read.
  std::optional<double> best_score() const;

  // Throws OutputError if this process could not write to the folder and that of its checkpoints, or could
  // not make them, or if something else stands where its links would. Changes nothing.
  void require_writable() const;

  // Throws OutputError if there is anything in the folder.
  void require_free() const;

  // Makes the folder. Throws OutputError if it cannot, or if it is not free, unless `again`.
  void create(bool again = false) const;

  // Writes env.json and config.toml, a configuration that repeats the run. Throws OutputError.
  void write_beginning(const std::string& config) const;

  // Notes the launch (World::launch) whose restarts go on in this folder. Throws OutputError.
  void write_launch(const std::string& launch) const;

  // Returns true if this launch has begun or resumed this run. False for an empty `launch`: nothing tells
  // such launches apart.
  bool begun_by(const std::string& launch) const;

  // Returns true if a restart of this launch may go on here: begun_by(), or no run has written anything here.
  bool is_of_launch(const std::string& launch) const;

  // Removes what killed processes have left of files and folders that were not complete.
  void remove_stale_temporaries() const;

  // Renames checkpoints of later steps, all of them damaged, to NAME.damaged. Throws OutputError.
  void set_aside_after(int64_t step) const;

 private:
  std::filesystem::path path_;
};

// Makes runs/NAME-0001, or with the next number that is free, and returns it. Several processes that do so at
// once get different folders. Throws OutputError.
RunFolder create_numbered_run(std::string_view name);

// As RunFolder::require_writable(), before create_numbered_run().
void require_writable_runs();

// The runs of this name below runs/, the newest first.
std::vector<RunFolder> numbered_runs(std::string_view name);

struct FoundCheckpoint {
  RunFolder run;
  std::filesystem::path path;
  RunState state;
  std::vector<int64_t> steps = {};  // of all checkpoints of the run, before this one was read
};

// Returns true if this folder has a checkpoint's manifest.
bool is_checkpoint(const std::filesystem::path& path);

// The bytes of the files in this folder, without those that cannot be looked at.
uint64_t bytes_in(const std::filesystem::path& folder);

// How far the run of this checkpoint's folder had come, without its tensors; nothing if that cannot be read.
std::optional<RunPosition> position_of(const std::filesystem::path& checkpoint);

// The newest checkpoint of the run that verifies. Damaged ones are named to `warn` and skipped.
std::optional<FoundCheckpoint> newest_checkpoint(const RunFolder& run,
                                                 const std::function<void(const std::string&)>& warn);

// Call it after locking the run's folder: another process may have written to it since its checkpoint was
// read. steps: of the checkpoints that were there then. Throws OutputError if there are others now.
void require_unchanged(const RunFolder& run, std::span<const int64_t> steps);

// The checkpoint in this folder, or the newest one of the run in this folder. Throws WeightsError if there is
// none, or if the named one is damaged.
FoundCheckpoint open_checkpoint(const std::string& path, const std::function<void(const std::string&)>& warn);

// Returns the checkpoint that --resume names. "auto": the newest that verifies in `output`, or without
// `output` in the newest run of this name that has checkpoints; nothing if there are none. Otherwise the
// folder of a run or of a checkpoint. Names damaged ones to `warn` and skips them. Throws WeightsError if a
// named folder has none, or if a run has only damaged ones, and UsageError if the named checkpoint is not the
// newest of a run and `output` names no other folder.
std::optional<FoundCheckpoint> find_checkpoint(const std::string& resume,
                                               const std::optional<std::string>& output,
                                               std::string_view name,
                                               const std::function<void(const std::string&)>& warn);

}  // namespace lockstep
