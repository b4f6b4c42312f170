// The settings of what a run shows, checks and keeps.
#include <CLI/CLI.hpp>

#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/train/settings/settings.h>

namespace lockstep {
namespace {

CLI::Option* add_log_every(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.log_every, "Print a step line every N steps")->check(positive_int());
}

CLI::Option* add_metrics(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.metrics,
                  "Also write the plan, step and epoch lines as JSON lines to this file; '-': to standard "
                  "output instead of the text")
      ->type_name("FILE");
}

CLI::Option* add_trace(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trace,
                  "Write a timeline of every replica to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
}

CLI::Option* add_save(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(
          flag, flags.save,
          "Write the weights (with --ema their average) to this safetensors file at the end, also when "
          "the run is stopped")
      ->type_name("FILE");
}

CLI::Option* add_output(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  const auto set = [&flags](const CLI::results_t& words) {
    flags.output = words.front();
    return true;
  };
  return command
      .add_option(
          flag, set,
          "Keep metrics, plots, log and checkpoints in this new folder; without DIR in runs/RECIPE-NUMBER")
      ->expected(0, 1)
      ->type_name("[DIR]");
}

CLI::Option* add_checkpoint_every(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.checkpoint_every,
                  "Write a checkpoint every N steps, Ns (seconds) or Nepochs; by default 1epoch")
      ->type_name("N|Ns|Nepochs");
}

CLI::Option* add_keep(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.keep, "Number of newest checkpoints to keep, besides the best")
      ->check(positive_int());
}

CLI::Option* add_resume(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.resume,
                  "Go on with the run in this folder from its newest whole checkpoint, or from the "
                  "checkpoint in it, as "
                  "it was started; 'auto': with the newest run, if there is one, and the flags as given")
      ->type_name("auto|DIR");
}

CLI::Option* add_resume_anyway(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.resume_anyway,
                  "Take this setting from the command line although the checkpoint has another one")
      ->check(one_of(changeable_settings()))
      ->type_name("SETTING");
}

CLI::Option* add_on_nan(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(
      command, flag, flags.on_nan, kOnNanNames,
      "When a loss is not finite: stop, or go on from the newest checkpoint. rollback: with the batches "
      "behind the bad one; skip: with the same ones except the bad one");
}

CLI::Option* add_on_save_error(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.on_save_error, kOnSaveErrorNames,
                    "When a checkpoint cannot be written: stop, or go on without it");
}

CLI::Option* add_overwrite(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.overwrite, "Replace existing output files");
}

CLI::Option* add_print_weights_hash(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.print_weights_hash,
                          "Print the SHA-256 of all weights after the last step");
}

CLI::Option* add_quiet(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.quiet, "Print only warnings and the last line");
}

CLI::Option* add_progress(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_choice(command, flag, flags.progress, kProgressDisplayNames,
                    "Show the progress as a live line with a bar, plain lines, or not at all; auto: bar on a "
                    "terminal");
}

CLI::Option* add_dry_run(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.dry_run, "Check everything and print the plan, but train nothing");
}

CLI::Option* add_json(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.json, "With --dry-run: print the plan as JSON");
}

CLI::Option* add_print_config(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_flag(flag, flags.print_config,
                          "Print a configuration for --config that repeats this run, but train nothing");
}

CLI::Option* add_check_sync(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.check_sync,
                  "Compare the weights of all replicas every K steps, and stop if they differ; 0: never")
      ->check(non_negative_int())
      ->type_name("K");
}

constexpr Setting kOutputSettings[] = {
    {.name = "log-every",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_log_every,
     .in = kInConfig,
     .config = [](const auto& flags, const auto&) -> Json { return flags.log_every; }},
    {.name = "metrics", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_metrics},
    {.name = "trace", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_trace},
    {.name = "save", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_save},
    {.name = "overwrite", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_overwrite},
    {.name = "print-weights-hash",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_print_weights_hash},
    {.name = "quiet", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_quiet},
    {.name = "progress", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_progress},
    {.name = "dry-run",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_dry_run,
     .in = kAgreed,
     .given = [](const auto& flags, const auto&) -> Json { return flags.dry_run; }},
    {.name = "json", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_json},
    {.name = "print-config",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_print_config,
     .in = kAgreed,
     .given = [](const auto& flags, const auto&) -> Json { return flags.print_config; }},
    {.name = "output", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_output},
    {.name = "checkpoint-every",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_checkpoint_every,
     .in = kKept,
     .config = [](const auto& flags, const auto&) { return or_null(flags.checkpoint_every); }},
    {.name = "keep",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_keep,
     .in = kKept,
     .config = [](const auto& flags, const auto&) -> Json { return flags.keep; }},
    {.name = "resume", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_resume},
    {.name = "resume-anyway", .commands = kTrain, .group = HelpGroup::kOutput, .add = add_resume_anyway},
    {.name = "on-nan",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_on_nan,
     .in = kAgreed | kKept,
     .given = [](const auto& flags, const auto&) { return named(kOnNanNames, flags.on_nan); },
     .config = [](const auto& flags, const auto&) { return named(kOnNanNames, flags.on_nan); }},
    {.name = "on-save-error",
     .commands = kTrain,
     .group = HelpGroup::kOutput,
     .add = add_on_save_error,
     .in = kKept,
     .config = [](const auto& flags, const auto&) { return named(kOnSaveErrorNames, flags.on_save_error); }},
    {.name = "check-sync",
     .commands = kTrain,
     .group = HelpGroup::kProcesses,
     .add = add_check_sync,
     .in = kInPlan | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.check_sync; }},
    {.name = "memory-estimate-bytes",
     .in = kInPlan,
     .planned = [](const auto& plan) -> Json { return plan.memory_estimate; },
     .is_fact = true},  // a run that goes on needs more
};

}  // namespace

std::span<const Setting> output_settings() { return kOutputSettings; }

}  // namespace lockstep
