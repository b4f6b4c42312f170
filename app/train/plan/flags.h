// The values of the flags that say what is trained and how: of `train`, and of every command that trains to
// measure. The flags themselves: settings/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/app/train/plan/labels.h>
#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/app/train/plan/on_error.h>
#include <lockstep/app/train/plan/pixel_changes.h>
#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/trainer_options.h>
#include <lockstep/support/choices.h>
#include <lockstep/support/kernels.h>

namespace lockstep {

// The display of a run while it trains.
enum class ProgressDisplay { kAuto, kBar, kPlain, kNone };

inline constexpr Choice<ProgressDisplay> kProgressDisplayNames[] = {{"auto", ProgressDisplay::kAuto},
                                                                    {"bar", ProgressDisplay::kBar},
                                                                    {"plain", ProgressDisplay::kPlain},
                                                                    {"none", ProgressDisplay::kNone}};

// As given. An empty value comes from the recipe, or is derived from the devices.
struct TrainFlags {
  // what
  std::optional<std::string> recipe;  // empty: recipe_of() says which
  std::optional<std::string> model;
  std::optional<std::string> program;    // instead of a model: an exported program's file
  std::optional<LossChoice> loss;        // of the program
  DataFlags data;                        // the rows
  Augmentation augment;                  // of training images
  NormalizeFlag normalize;               // of images
  std::optional<std::string> init_from;  // a safetensors file
  std::optional<std::string> freeze;     // patterns of parameters' names
  double label_smoothing = 0;
  std::optional<double> validation_share;  // of the training rows
  std::optional<int64_t> patience;         // epochs
  ClassWeights class_weights = ClassWeights::kNone;
  std::optional<int64_t> limit_steps;  // steps of the whole run
  std::optional<int64_t> epochs;
  std::optional<int64_t> batch_size;  // global

  // where
  std::string devices = "auto";
  std::string split = "even";  // or "auto", or shares: "3:1"

  // how
  // Options without a field of their own in TrainFlags are parsed straight into it. make_train_plan() sets
  // the rest.
  TrainerOptions trainer;
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::optional<Schedule> schedule;
  std::optional<int64_t> warmup_epochs;
  std::optional<double> gamma;
  std::optional<int64_t> plateau_patience;
  std::optional<SyncMode> sync;
  std::optional<int64_t> bucket_mb;
  std::optional<Allreduce> allreduce;
  Kernels kernels = Kernels::kAuto;
  bool deterministic = false;

  // watch and keep
  int64_t log_every = 50;              // steps
  std::optional<std::string> config;   // the file that --config names
  std::optional<std::string> metrics;  // a file of JSON lines, "-": standard output
  std::optional<std::string> trace;    // a file for chrome://tracing
  std::optional<std::string> save;     // a safetensors file
  bool overwrite = false;
  std::optional<std::string> output;  // the run's folder; "": a numbered one below runs/
  std::optional<std::string> checkpoint_every;
  int64_t keep = 3;                        // checkpoints
  std::optional<std::string> resume;       // "auto", a run's folder or a checkpoint's
  std::vector<std::string> resume_anyway;  // settings that may differ from the checkpoint's
  OnNan on_nan = OnNan::kStop;
  OnSaveError on_save_error = OnSaveError::kStop;
  bool print_weights_hash = false;
  bool quiet = false;
  ProgressDisplay progress = ProgressDisplay::kAuto;
  bool dry_run = false;
  bool print_config = false;
  bool json = false;  // the plan of a dry run
};

inline constexpr int64_t kBytesPerMb = 1 << 20;  // of --bucket-mb
inline constexpr int64_t kMaxEpochs = 1'000'000;
inline constexpr int64_t kMaxRows = int64_t{1} << 31;  // of a data set, of a batch

}  // namespace lockstep
