#include <lockstep/app/train/train.h>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/checkpoint/interval.h>
#include <lockstep/app/checkpoint/kept_run.h>
#include <lockstep/app/checkpoint/same_run.h>
#include <lockstep/app/cli/add_choice.h>
#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/config_file.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/cli/version.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/memory/need_memory.h>
#include <lockstep/app/memory/out_of_memory.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/join_world.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/combinations.h>
#include <lockstep/app/train/config_text.h>
#include <lockstep/app/train/fields.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/notices.h>
#include <lockstep/app/train/plan.h>
#include <lockstep/app/train/progress_choice.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/app/train/report.h>
#include <lockstep/app/train/run.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/parallel/sync_check.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/atomic_file.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

void add_run_folder_flags(CLI::App& train, TrainFlags& options) {
  const auto set_output = [&options](const CLI::results_t& words) {
    options.output = words.front();
    return true;
  };
  train
      .add_option("--output", set_output,
                  "Keep checkpoints and metrics in this new folder; without DIR in runs/RECIPE-NUMBER")
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
      ->check(CLI::Validator(one_of(changeable_settings()), ""))
      ->type_name("SETTING");
  add_choice(train, "--on-nan", options.on_nan, kOnNanNames,
             "When a loss is not finite: stop, or go on from the newest checkpoint, with the batches behind "
             "the bad one (rollback) or with the same ones but for the bad one (skip)");
  add_choice(train, "--on-save-error", options.on_save_error, kOnSaveErrorNames,
             "When a checkpoint cannot be written: stop, or go on without it");
}

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

bool metrics_on_stdout(const TrainFlags& options) { return options.metrics == kStandardOutput; }

// The file that --metrics names: none for standard output, which only that flag can name.
std::optional<std::string> metrics_file(const TrainFlags& options) {
  return metrics_on_stdout(options) ? std::nullopt : options.metrics;
}

void check_json(const TrainFlags& options) {
  if (!options.json || options.dry_run || options.print_config) return;
  throw UsageError("--json prints the plan of a --dry-run, this run trains",
                   "use --metrics - to get the run as JSON lines, or add --dry-run");
}

// The files of a run, opened before any work: a path that cannot be written stops the run at once. A dry run
// opens them too, and leaves nothing behind.
struct OutputFiles {
  std::optional<LineFile> metrics;
  std::optional<AtomicFile> trace;
  KeptRun kept;

  void open(TrainFlags& options, bool restart) {
    check_distinct_files(
        {{"--metrics", metrics_file(options)}, {"--trace", options.trace}, {"--save", options.save}});
    if (options.metrics) metrics.emplace(*options.metrics, options.overwrite);
    if (options.trace) trace.emplace(*options.trace, options.overwrite);
    if (options.save) check_can_save(*options.save, options.overwrite);
    kept.open(options, restart);
  }
};

// Writes the weights and the trace of the steps taken. If one cannot be written, still writes the other and
// then throws the first error. All processes collect the weights and process 0 writes; then they leave
// together. So what is kept needs no other process, and an error of process 0 is its own.
void keep(TrainRun& run, const TrainPlan& plan, const TrainFlags& options, OutputFiles& files) {
  std::exception_ptr failed;
  const auto attempt = [&](const std::function<void()>& action) {
    try {
      action();
    } catch (const std::exception& error) {
      if (failed) warn(error.what());
      if (!failed) failed = std::current_exception();
    }
  };
  const auto say = [&](const std::string& line) {
    if (!options.quiet) write_stdout(line);
  };
  const bool saves = options.save && run.has_trained();
  std::vector<NamedTensor> weights;
  if (saves) attempt([&] { weights = run.weights(); });
  const bool collected = !failed;
  if (saves && collected && plan.world.leads()) {
    attempt([&] {
      save_weights(std::move(weights), plan.model, *options.save, options.overwrite);
      say(fmt::format("weights saved to {}\n", *options.save));
    });
  }
  if (files.trace && run.has_trained()) {
    attempt([&] {
      write_chrome_trace(run.trace(), *files.trace, warn);
      say(fmt::format("trace written to {}\n", *options.trace));
    });
  }
  if (files.kept.checkpoints) attempt([&] { files.kept.finish(say); });
  if (collected) leave_together(plan.world);
  if (failed) std::rethrow_exception(failed);
}

// What a stopped run waits for.
std::string awaited(const TrainFlags& options) {
  const bool files = options.save || options.trace || options.checkpoint_every;
  return files ? "the current step and the output files" : "the current step";
}

void print_plan(const TrainPlan& plan, const TrainFlags& options, const Terminal& terminal) {
  if (!plan.world.leads()) return;
  if (options.dry_run && (options.json || metrics_on_stdout(options))) {
    write_stdout(json_line(plan_json(plan)));
  } else if (!options.quiet) {
    write_stdout(fmt::format("{}\n{}\n", version_text(), describe(plan, terminal.text_width())));
  }
  for (const auto& notice : machine_notices(plan)) warn(notice);
  for (const auto& notice : batch_notices(plan)) warn(notice);
  if (const auto notice = rate_notice(plan)) warn(*notice);
}

void print_end(const RunReport& report, const TrainPlan& plan, const TrainFlags& options) {
  if (!plan.world.leads() || metrics_on_stdout(options)) return;  // the metrics' last line says it all
  if (!options.quiet) {
    if (report.steps % plan.steps_per_epoch != 0) {
      write_stdout(fmt::format("stopped after {} (--limit-steps); sec/epoch is scaled to an epoch of {}\n",
                               counted(report.steps, "step"), counted(plan.steps_per_epoch, "step")));
    }
    write_stdout(fmt::format("peak memory{}: {:.0f} MB resident ({:.0f} MB estimated)\n",
                             plan.world.alone() ? "" : " of process 0",
                             static_cast<double>(report.peak_bytes) / 1e6,
                             static_cast<double>(plan.memory_estimate) / 1e6));
  }
  if (report.weights_sha256) write_stdout(fmt::format("weights sha256: {}\n", *report.weights_sha256));
  write_stdout(closing_line(report, plan) + "\n");
}

// Checks everything before the first step. What one process must refuse ends all processes. Process 0 opens
// its files before the data are read; until the run begins they leave nothing behind.
TrainPlan prepare(TrainFlags& options, TrainWorld& world, OutputFiles& files,
                  const InterruptGuard& interrupt) {
  assemble(world, options, [&] {
    check_json(options);
    check_combinations(options, find_recipe(options.recipe));
    if (world.leads()) check_progress(options);
    if (metrics_on_stdout(options)) options.quiet = true;
    if (world.leads()) files.open(options, world.place.restart > 0);
  });
  TrainPlan plan;
  const auto settings = together(world, [&] {
    plan = make_train_plan(options, {}, world);
    files.kept.check_same_run(plan, options);
    need_memory_for(std::span(&plan, 1));
    if (!world.alone()) interrupt.stop_if_signalled("before the first step");
    return agreed_fields(options, plan);
  });
  refuse_other_settings(settings);
  return plan;
}

// Runs to the end, or until what all processes have agreed to stop for.
RunReport run_and_keep(TrainRun& run, const TrainPlan& plan, const TrainFlags& options, OutputFiles& files) {
  RunReport report;
  try {
    report = run.run();
  } catch (const InterruptedError&) {
    keep(run, plan, options, files);
    throw;
  } catch (const OutputError&) {
    keep(run, plan, options, files);
    throw;
  } catch (const NumericError&) {
    leave_together(plan.world);
    throw;
  } catch (const OutOfSyncError&) {
    leave_together(plan.world);
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what_without_backtrace(), plan);
  }
  keep(run, plan, options, files);
  return report;
}

RunOutputs outputs_of(const TrainFlags& options, OutputFiles& files) {
  auto& kept = files.kept;
  RunOutputs outputs{.metrics = files.metrics ? &*files.metrics : nullptr,
                     .run_metrics = kept.metrics ? &*kept.metrics : nullptr,
                     .checkpoints = kept.checkpoints ? &*kept.checkpoints : nullptr};
  if (options.checkpoint_every) outputs.every = parse_interval(*options.checkpoint_every);
  return outputs;
}

// What all processes go on from: process 0 has it. Null for a run from the start.
const RunState* resumed_state(const TrainFlags& options, const OutputFiles& files) {
  static const RunState kOfProcess0;
  if (files.kept.found) return &files.kept.found->state;
  return options.resume ? &kOfProcess0 : nullptr;
}

void end_complete(const TrainRun& run, const TrainWorld& world, const TrainFlags& options) {
  if (world.leads() && !options.quiet) {
    write_stdout(fmt::format("all {} of this run are done: there is nothing left to do\n",
                             counted(run.steps_done(), "step")));
  }
  leave_together(world);
}

void train_with(TrainWorld& world, TrainFlags options, ColorMode color) {
  const InterruptGuard interrupt(awaited(options));
  OutputFiles files;
  const auto plan = prepare(options, world, files, interrupt);
  if (options.print_config) {
    if (world.leads()) write_stdout(config_text(options, plan));
    return leave_together(world);
  }
  const Terminal terminal(STDOUT_FILENO, color);
  print_plan(plan, options, terminal);
  if (world.alone()) interrupt.stop_if_signalled("before the first step");
  if (options.dry_run) return leave_together(world);

  together(world, [&] {
    if (world.leads()) files.kept.begin(plan, options);
    return nlohmann::ordered_json();
  });
  auto outputs = outputs_of(options, files);
  const auto live = live_display(plan, options, color);
  outputs.live = live.get();
  TrainRun run(plan, options, terminal, outputs, resumed_state(options, files));
  if (run.complete()) return end_complete(run, world, options);
  const auto report = run_and_keep(run, plan, options, files);
  print_end(report, plan, options);
  // Several processes have agreed for the last time before they left each other.
  if (world.alone()) interrupt.stop_if_signalled("after the run was done");
}

}  // namespace

void setup_train(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a recipe on one device or several");
  auto options = std::make_shared<TrainFlags>();
  add_config_flag(*train);
  add_recipe_flags(*train, *options);
  add_epochs_flag(*train, *options);
  add_run_flags(*train, *options);
  add_devices_flag(*train, *options);
  add_replica_flags(*train, *options);
  add_optimizer_flags(*train, *options);
  add_engine_flags(*train, *options);
  add_output_flags(*train, *options);
  const auto processes = std::make_shared<ProcessFlags>();
  add_process_flags(*train, *processes);
  add_compress_flag(*train, *options);
  add_check_sync_flag(*train, *options);
  group_flags(*train);
  train->callback([options, processes, train] { run_train(*options, *processes, color_mode(*train)); });
}

void run_train(const TrainFlags& flags, const ProcessFlags& processes, ColorMode color) {
  in_joined_world(processes, awaited(flags), [&](TrainWorld& world) { train_with(world, flags, color); });
}

}  // namespace lockstep
