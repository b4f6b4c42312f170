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

#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/cli/version.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/memory/need_memory.h>
#include <lockstep/app/memory/out_of_memory.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/combinations.h>
#include <lockstep/app/train/flags.h>
#include <lockstep/app/train/notices.h>
#include <lockstep/app/train/plan.h>
#include <lockstep/app/train/recipe.h>
#include <lockstep/app/train/report.h>
#include <lockstep/app/train/run.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/parallel/trainer.h>

namespace lockstep {
namespace {

void add_epochs(CLI::App& train, TrainFlags& options) {
  train.add_option("--epochs", options.epochs, "Passes over the training images (default: the recipe's)")
      ->check(positive_int(kMaxEpochs));
}

void add_devices(CLI::App& train, TrainFlags& options) {
  train
      .add_option("--devices", options.devices,
                  "One replica a device: auto, cpu, cpux2, cuda, cuda:0,cuda:1, cuda:0x2")
      ->type_name("LIST");
}

void add_watch(CLI::App& train, TrainFlags& options) {
  train.add_option("--log-every", options.log_every, "Steps between two step lines")->check(positive_int());
  train
      .add_option("--metrics", options.metrics,
                  "Also write the plan, step lines and epoch lines to this file, as JSON lines")
      ->type_name("FILE");
  train
      .add_option("--trace", options.trace,
                  "Write what each replica did when to this file, for chrome://tracing or ui.perfetto.dev")
      ->type_name("FILE");
  train
      .add_option("--save", options.save,
                  "Write the weights to this safetensors file at the end, or when the run is stopped")
      ->type_name("FILE");
  train.add_flag("--overwrite", options.overwrite, "Replace an output file that exists");
  train.add_flag("--print-weights-hash", options.print_weights_hash,
                 "Print the SHA-256 of all weights after the last step");
  train.add_flag("--quiet", options.quiet, "Only warnings and the last line");
  train.add_flag("--dry-run", options.dry_run, "Check everything, print the plan, write and train nothing");
}

// Writes what was to be kept of the run, as far as it got. Throws what one of them threw when the others are
// written.
void keep(TrainRun& run, const TrainPlan& plan, const TrainFlags& options, std::optional<AtomicFile>& trace) {
  std::exception_ptr failed;
  const auto attempt = [&](const std::function<void()>& write, const std::string& done) {
    try {
      write();
      if (!options.quiet) write_stdout(done);
    } catch (const std::exception& error) {
      if (failed) warn(error.what());
      if (!failed) failed = std::current_exception();
    }
  };
  if (options.save && run.has_trained()) {
    attempt([&] { save_weights(run.weights(), plan.model, *options.save, options.overwrite); },
            fmt::format("weights saved to {}\n", *options.save));
  }
  if (trace && run.has_trained()) {
    attempt([&] { write_chrome_trace(run.trace(), *trace, warn); },
            fmt::format("trace written to {}\n", *options.trace));
  }
  if (failed) std::rethrow_exception(failed);
}

// After a signal.
std::string awaited(const TrainFlags& options) {
  const bool files = options.save || options.trace;
  return files ? "the step under way to end and the files to be written" : "the step under way to end";
}

void print_end(const RunReport& report, const TrainPlan& plan, const TrainFlags& options) {
  if (!options.quiet) {
    if (report.steps % plan.steps_per_epoch != 0) {
      write_stdout(
          fmt::format("stopped after {} steps (--limit-steps): sec/epoch is scaled to an epoch of {} steps\n",
                      report.steps, plan.steps_per_epoch));
    }
    write_stdout(fmt::format("peak memory: {:.0f} MB resident ({:.0f} MB estimated)\n",
                             static_cast<double>(report.peak_bytes) / 1e6,
                             static_cast<double>(plan.memory_estimate) / 1e6));
  }
  if (report.weights_sha256) write_stdout(fmt::format("weights sha256: {}\n", *report.weights_sha256));
  write_stdout(closing_line(report, plan) + "\n");
}

}  // namespace

void setup_train(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a recipe on one device or several");
  auto options = std::make_shared<TrainFlags>();
  add_recipe_flags(*train, *options);
  add_epochs(*train, *options);
  add_run_flags(*train, *options);
  add_devices(*train, *options);
  add_replica_flags(*train, *options);
  add_optimizer_flags(*train, *options);
  add_engine_flags(*train, *options);
  add_watch(*train, *options);
  train->callback([options, train] { run_train(*options, color_mode(*train)); });
}

void run_train(const TrainFlags& options, ColorMode color) {
  const InterruptGuard interrupt(awaited(options));
  check_combinations(options, find_recipe(options.recipe));
  check_distinct_files(
      {{"--metrics", options.metrics}, {"--trace", options.trace}, {"--save", options.save}});
  // Before any work, so that a path that cannot be written stops the run at once. A dry run tells that too:
  // it opens the files and leaves nothing behind.
  std::optional<LineFile> metrics;
  std::optional<AtomicFile> trace;
  if (options.metrics) metrics.emplace(*options.metrics, options.overwrite);
  if (options.trace) trace.emplace(*options.trace, options.overwrite);
  if (options.save) check_can_save(*options.save, options.overwrite);

  const auto plan = make_train_plan(options);
  need_memory_for(std::span(&plan, 1));
  const Terminal terminal(STDOUT_FILENO, color);
  if (!options.quiet) write_stdout(fmt::format("{}\n{}\n", version_text(), describe(plan)));
  for (const auto& notice : machine_notices(plan)) warn(notice);
  if (const auto notice = rate_notice(plan)) warn(*notice);
  interrupt.stop_if_signalled("before the first step");
  if (options.dry_run) return;
  TrainRun run(plan, options, terminal, metrics ? &*metrics : nullptr);
  RunReport report;
  try {
    report = run.run();
  } catch (const InterruptedError&) {
    keep(run, plan, options, trace);
    throw;
  } catch (const OutputError&) {
    keep(run, plan, options, trace);
    throw;
  } catch (const c10::OutOfMemoryError& error) {
    throw out_of_memory(error.what_without_backtrace(), plan);
  }
  keep(run, plan, options, trace);
  print_end(report, plan, options);
  interrupt.stop_if_signalled("when all was done");
}

}  // namespace lockstep
