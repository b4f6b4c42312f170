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

#include <lockstep/app/cli/as_error.h>
#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/files/distinct_files.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/files/line_file.h>
#include <lockstep/app/files/weights_file.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/join_world.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/assemble_run.h>
#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/app/train/checkpoint/kept_run.h>
#include <lockstep/app/train/checkpoint/run_config.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/print_run.h>
#include <lockstep/app/train/progress/progress_display.h>
#include <lockstep/app/train/progress/report.h>
#include <lockstep/app/train/run.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/safetensors.h>
#include <lockstep/parallel/timing/chrome_trace.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/parallel/training/sync_check.h>
#include <lockstep/support/error.h>
#include <lockstep/support/files/atomic_file.h>
#include <lockstep/support/words_of.h>

namespace lockstep {
namespace {

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

  void open(TrainFlags& options, const World& place) {
    const std::vector<FileFlag> files = {
        {"--metrics", metrics_file(options)}, {"--trace", options.trace}, {"--save", options.save}};
    check_distinct_files(files, {{"--config", options.config}});
    if (options.metrics) metrics.emplace(*options.metrics, options.overwrite);
    if (options.trace) trace.emplace(*options.trace, options.overwrite);
    if (options.save) check_can_save(*options.save, options.overwrite);
    kept.open(options, place);
    if (const auto folder = kept.folder(options)) check_outside_folder(files, *folder, "the run's folder");
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
      if (failed) warn(words_of(error));
      if (!failed) failed = std::current_exception();
    }
  };
  auto& kept = files.kept;
  const auto say = [&](const std::string& line) { print_and_log(kept.log.get(), options.quiet, line); };
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
  attempt([&] { kept.finish(options.quiet); });
  if (collected) leave_together(plan.world);
  if (failed) std::rethrow_exception(failed);
}

// Returns what a stopped run waits for.
std::string awaited(const TrainFlags& options) {
  const bool checkpoint = options.checkpoint_every || options.output || options.resume;
  const bool files = options.save || options.trace || checkpoint;
  return files ? "step and files" : "the current step";
}

// A named run goes on with its own configuration, which process 0 has.
void take_own_configuration(TrainFlags& options, const TrainWorld& world, KeptRun& kept,
                            const RunFlags& of_run) {
  const bool named = options.resume && *options.resume != "auto";
  const auto told = together(world, [&]() -> Json {
    if (!world.leads() || !named) return {};
    kept.find(options, world.place);
    return run_config(*kept.found);
  });
  if (told.front().is_null()) return;
  const auto& run = told.front();
  const auto places = together(world, [&]() -> Json { return of_run.in_place(run, world.place); });
  const bool in_place = std::ranges::all_of(places, [](const Json& each) { return each.get<bool>(); });
  together(world, [&]() -> Json {
    auto completed = of_run.complete(run, in_place);
    completed.resume = std::move(options.resume);  // as find() has left it
    options = std::move(completed);
    return {};
  });
}

// Checks everything before the first step. What one process must refuse ends all processes. Process 0 opens
// its files before the data are read; until the run begins they leave nothing behind.
TrainPlan prepare(TrainFlags& options, TrainWorld& world, OutputFiles& files,
                  const InterruptGuard& interrupt) {
  assemble_run(world, options, [&] {
    check_json(options);
    check_combinations(options, find_recipe(options.recipe));
    if (world.leads()) check_progress_display(options);
    if (metrics_on_stdout(options)) options.quiet = true;
    if (world.leads()) files.open(options, world.place);
  });
  TrainPlan plan;
  agree_on_settings(world, [&] {
    plan = make_train_plan(options, {}, world);
    files.kept.fit_plan(plan, options);
    need_memory_for(std::span(&plan, 1));
    if (!world.single_process()) interrupt.stop_if_signalled("before the first step");
    return agreed_fields(options, plan);
  });
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
  const auto& kept = files.kept;
  RunOutputs outputs{.metrics = files.metrics ? &*files.metrics : nullptr,
                     .run_metrics = kept.metrics.get(),
                     .run_metrics_finished = kept.metrics_finished,
                     .plots = kept.plots.get(),
                     .log = kept.log.get(),
                     .checkpoints = kept.checkpoints.get()};
  if (options.checkpoint_every) outputs.every = parse_interval(*options.checkpoint_every);
  return outputs;
}

// Returns the state that all processes go on from: process 0 has it. Null for a run from the start.
const RunState* resumed_state(const TrainFlags& options, const OutputFiles& files) {
  static const RunState kOfProcess0;
  if (files.kept.found) return &files.kept.found->state;
  return options.resume ? &kOfProcess0 : nullptr;
}

// The error that ends a run goes into the log, too.
RunReport logged_run(TrainRun& run, const TrainPlan& plan, const TrainFlags& options, OutputFiles& files) {
  try {
    return run_and_keep(run, plan, options, files);
  } catch (const std::exception&) {
    if (files.kept.log)
      files.kept.log->note(fmt::format("error: {}", as_error(std::current_exception()).message()));
    throw;
  }
}

void train_with(TrainWorld& world, TrainFlags options, ColorMode color, const RunFlags& of_run) {
  const InterruptGuard interrupt(awaited(options));
  OutputFiles files;
  take_own_configuration(options, world, files.kept, of_run);
  const auto plan = prepare(options, world, files, interrupt);
  if (options.print_config) {
    if (world.leads()) write_stdout(config_text(options, plan));
    return leave_together(world);
  }
  const Terminal terminal(STDOUT_FILENO, color);
  auto* const log = files.kept.log.get();
  if (world.leads()) print_plan(plan, options, terminal, log);
  if (world.single_process()) interrupt.stop_if_signalled("before the first step");
  if (options.dry_run) {
    files.kept.print_found("would resume", plan, options.quiet || options.json);
    return leave_together(world);
  }

  together(world, [&] {
    if (world.leads()) files.kept.begin(plan, options);
    return nlohmann::ordered_json();
  });
  auto outputs = outputs_of(options, files);
  const auto live = live_display(plan, options, color);
  outputs.live = live.get();
  TrainRun run(plan, options, terminal, outputs, resumed_state(options, files));
  const bool was_finished = run.complete();
  const auto report = logged_run(run, plan, options, files);
  if (world.leads()) (was_finished ? print_finished : print_result)(report, plan, options, log);
  // Several processes have agreed for the last time before they left each other.
  if (world.single_process()) interrupt.stop_if_signalled("after the run was done");
}

}  // namespace

void setup_train(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a recipe on one device or several");
  auto options = std::make_shared<TrainFlags>();
  add_config_flag(*train);
  set_group(*train, HelpGroup::kTask, {"--config"});
  add_setting_flags(*train, kTrain, *options);
  const auto processes = std::make_shared<ProcessFlags>();
  add_process_flags(*train, *processes);
  train->callback([options, processes, train] {
    options->config = config_path(*train);
    const RunFlags of_run{
        .in_place = [&](const auto& run,
                        const World& place) { return resumes_in_place(run, place, *options, *train); },
        .complete =
            [&](const auto& run, bool in_place) {
              apply_run_config(run, in_place, *options, *train);
              return *options;
            }};
    run_train(*options, *processes, color_mode(*train), of_run);
  });
}

void run_train(const TrainFlags& flags, const ProcessFlags& processes, ColorMode color,
               const RunFlags& of_run) {
  in_joined_world(processes, awaited(flags),
                  [&](TrainWorld& world) { train_with(world, flags, color, of_run); });
}

}  // namespace lockstep
