// The flags that say what a run of train shows and keeps.
#include <CLI/CLI.hpp>

#include <string>

#include <lockstep/app/checkpoint/same_run.h>
#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/train/flags.h>

namespace lockstep {
namespace {

void add_run_folder_flags(CLI::App& train, TrainFlags& options) {
  const auto set_output = [&options](const CLI::results_t& words) {
    options.output = words.front();
    return true;
  };
  train
      .add_option(
          "--output", set_output,
          "Keep metrics, plots, log and checkpoints in this new folder; without DIR in runs/RECIPE-NUMBER")
      ->expected(0, 1)
      ->type_name("[DIR]");
  train
      .add_option("--checkpoint-every", options.checkpoint_every,
                  "Write a checkpoint every N steps, Ns (seconds) or Nepochs; by default 1epoch")
      ->type_name("N|Ns|Nepochs");
  train.add_option("--keep", options.keep, "Keep so many of the newest checkpoints, and the best one")
      ->check(positive_int());
  train
      .add_option(
          "--resume", options.resume,
          "Go on from the newest whole checkpoint: of a run's folder, of a checkpoint's, or with 'auto' of "
          "the newest run, if there is one")
      ->type_name("auto|DIR");
  train
      .add_option("--resume-anyway", options.resume_anyway,
                  "Take this setting from the command line although the checkpoint has another one")
      ->check(one_of(changeable_settings()))
      ->type_name("SETTING");
  add_choice(train, "--on-nan", options.on_nan, kOnNanNames,
             "When a loss is not finite: stop, or go on from the newest checkpoint, with the batches behind "
             "the bad one (rollback) or with the same ones but for the bad one (skip)");
  add_choice(train, "--on-save-error", options.on_save_error, kOnSaveErrorNames,
             "When a checkpoint cannot be written: stop, or go on without it");
}

}  // namespace

void add_output_flags(CLI::App& train, TrainFlags& options) {
  train.add_option("--log-every", options.log_every, "Print a step line every N steps")
      ->check(positive_int());
  train
      .add_option("--metrics", options.metrics,
                  "Also write the plan, step and epoch lines as JSON lines to this file; '-': to standard "
                  "output instead of the text")
      ->type_name("FILE");
  train
      .add_option("--trace", options.trace,
                  "Write a timeline of every replica to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
  train
      .add_option("--save", options.save,
                  "Write the weights to this safetensors file at the end, also when the run is stopped")
      ->type_name("FILE");
  add_run_folder_flags(train, options);
  train.add_flag("--overwrite", options.overwrite, "Replace existing output files");
  train.add_flag("--print-weights-hash", options.print_weights_hash,
                 "Print the SHA-256 of all weights after the last step");
  train.add_flag("--quiet", options.quiet, "Print only warnings and the last line");
  add_choice(train, "--progress", options.progress, kProgressNames,
             "What is shown of the progress: a live line with a bar, plain lines, or none (auto: bar on a "
             "terminal)");
  train.add_flag("--dry-run", options.dry_run, "Check everything and print the plan, but train nothing");
  train.add_flag("--json", options.json, "With --dry-run: print the plan as JSON");
  train.add_flag("--print-config", options.print_config,
                 "Print a configuration for --config that repeats this run, but train nothing");
}

}  // namespace lockstep
