#include <lockstep/app/train/checkpoint/kept_run.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/machine/environment.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/checkpoint/checkpoint_memory.h>
#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/app/train/checkpoint/run_program.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> named_output(const TrainFlags& options) {
  return options.output && !options.output->empty() ? options.output : std::nullopt;
}

bool is_own_folder(const FoundCheckpoint& found, const std::string& output) {
  return fs::weakly_canonical(output) == fs::weakly_canonical(found.run.path());
}

// The first part of a numbered folder's name: "resnet18-gluon", or "program".
std::string run_name(const TrainFlags& options) {
  return options.recipe ? *options.recipe : std::string(recipe_of(options).name);
}

// The folder of the run that this checkpoint is of.
std::string run_of(const fs::path& checkpoint) {
  return fs::proximate(fs::canonical(checkpoint).parent_path().parent_path());
}

// The folder that the run writes to: the checkpoint's, or a new one.
RunFolder folder_of(const std::optional<FoundCheckpoint>& found, const TrainFlags& options,
                    bool reuses_folder, bool rescales_steps) {
  const auto output = named_output(options);
  if (found && !rescales_steps && (!output || is_own_folder(*found, *output))) return found->run;
  if (!output) return create_numbered_run(run_name(options));
  RunFolder run(*output);
  run.create(reuses_folder);
  return run;
}

void warn_of_differences(const RunState& state, const TrainPlan& plan) {
  const auto planned = plan_fields(plan);
  if (auto notice = rewritten_files(state.plan, planned); !notice.empty()) warn(notice);
  if (const auto differences = bit_differences(state, planned); !differences.empty()) {
    warn(fmt::format("{}: the next steps may differ in their last bits from those without a break",
                     fmt::join(differences, ", ")));
  }
  const auto replicas = state.trainer.replicas.size();
  if (!plan.has_statistics_per_replica() || replicas == static_cast<size_t>(plan.world_size())) return;
  warn(fmt::format("{} where the checkpoint has {}: all go on with its batch-norm statistics (--bn {})",
                   counted(plan.world_size(), "replica"), replicas,
                   name_of(kBnPolicyNames, plan.trainer.bn)));
}

std::string cost_text(const CheckpointCost& cost) {
  return fmt::format("checkpoint of step {}: {:.1f} MB; training waited {:.1f} ms, writing took {:.0f} ms",
                     cost.step, static_cast<double>(cost.tensor_bytes) / 1e6, 1e3 * cost.waited,
                     1e3 * cost.wrote);
}

// "10 of 15 steps done". A run may go on with a lower limit than it had before.
std::string done_text(int64_t steps, int64_t total) {
  if (steps <= total) return fmt::format("{} of {} done", steps, counted(total, "step"));
  return fmt::format("{} done, this run ends after {}", counted(steps, "step"), total);
}

bool is_finished(const RunState& state, const TrainPlan& plan) {
  return state.position.is_finished(state.trainer.steps, plan.total_steps);
}

// Returns true if this run has nothing left to do and its folder's metrics say so, if it ends where they do.
bool has_finished_metrics(const RunState& state, const TrainPlan& plan, const RunFolder& run) {
  if (!is_finished(state, plan)) return false;
  return state.trainer.steps > plan.total_steps || ends_done(run.path() / kMetricsJsonl);
}

// The metrics behind the checkpoint belong to steps that are done again, or to an end that has failed.
std::optional<FileSizes> metrics_to_keep(const FoundCheckpoint& found, bool whole) {
  return whole ? std::nullopt : std::optional(found.state.file_bytes);
}

}  // namespace

bool wants_folder(const TrainFlags& options) {
  return options.output || options.checkpoint_every || options.resume;
}

void KeptRun::find(TrainFlags& options, const World& place) {
  if (!options.resume_anyway.empty() && !options.resume) {
    throw UsageError("--resume-anyway changes a setting of a run that goes on, this run starts",
                     "add --resume auto, or leave --resume-anyway out");
  }
  if (!wants_folder(options)) return;
  log = std::make_unique<RunLog>();
  log->write(environment_text());
  if (place.restart > 0) find_after_restart(options, place.launch);
  if (options.resume && !found) {
    found = find_checkpoint(*options.resume, named_output(options), run_name(options), warn);
  }
  if (!options.resume) return;
  reuses_folder |= !found;
  if (!found) options.resume.reset();
}

void KeptRun::open(TrainFlags& options, const World& place) {
  if (options.on_nan != OnNan::kStop && !wants_folder(options)) {
    throw UsageError(fmt::format("--on-nan {} goes back to a checkpoint, and this run keeps none",
                                 name_of(kOnNanNames, options.on_nan)),
                     "add --output or --checkpoint-every");
  }
  if (!log) find(options, place);
  if (!log) return;
  if (!options.checkpoint_every) options.checkpoint_every = "1epoch";
  static_cast<void>(parse_interval(*options.checkpoint_every));
  const auto output = named_output(options);
  if (output) RunFolder(*output).require_writable();
  if (found && options.program) {  // before the data are held against a program that the run does not have
    check_program_there(found->state.plan, *options.program);
    check_same_program(found->state.plan, *open_program(*options.program));
  }
  if (found) return take_batch_and_rate(found->state.plan, options);
  if (output && !reuses_folder) RunFolder(*output).require_free();  // begin() finds out for good
}

std::optional<std::string> KeptRun::folder(const TrainFlags& options) const {
  const auto output = named_output(options);
  return found && !output ? std::optional(found->run.path().native()) : output;
}

bool KeptRun::has_checkpoint_files(const TrainFlags& options) const {
  return lockstep::has_checkpoint_files(folder(options).value_or("."));
}

// The run that the launcher has started again goes on from its own newest checkpoint. Without one it begins
// as it was told to, in the same folder. Folders of other runs are treated as at a first start.
void KeptRun::find_after_restart(TrainFlags& options, const std::string& launch) {
  auto own = named_output(options);
  // It may have newer ones than the named one.
  if (!own && options.resume && is_checkpoint(*options.resume)) own = run_of(*options.resume);
  if (own && !RunFolder(*own).is_of_launch(launch)) return;
  if (!own && !options.resume) {
    const auto runs = numbered_runs(run_name(options));
    const auto run = std::ranges::find_if(runs, [&](const auto& r) { return r.begun_by(launch); });
    if (run == runs.end()) return;
    own = options.output = run->path();
  }
  if (own) found = find_checkpoint("auto", own, run_name(options), warn);
  reuses_folder = true;
  if (found || !options.resume) options.resume = "auto";
}

void KeptRun::fit_plan(const TrainPlan& plan, const TrainFlags& options) {
  if (!plan.world.leads()) return;
  if (found) fit_checkpoint(plan, options);
  if (!options.checkpoint_every || options.print_config || named_output(options)) return;
  if (found && !rescales_steps) return found->run.require_writable();
  require_writable_runs();
}

void KeptRun::fit_checkpoint(const TrainPlan& plan, const TrainFlags& options) {
  auto& saved = found->state;
  const auto planned = plan_fields(plan);
  check_same_run(saved.plan, planned, options.resume_anyway);
  rescales_steps = rescale_steps(saved, planned);
  if (!rescales_steps) return;
  const auto output = named_output(options);
  if (!output && plan.world.place.max_restarts > 0) {
    throw UsageError(
        "--resume-anyway batch-size goes on in a new folder, which a restart by the launcher would not find",
        "name the new folder: --output DIR");
  }
  // Its checkpoints are ordered by their steps.
  if (output && is_own_folder(*found, *output)) {
    throw UsageError(
        fmt::format(
            "'{}' has a run whose steps are batches of {}, this one has {}: it needs a folder of its own",
            *output, saved.plan.at("batch_size").dump(), plan.batch_size),
        "name another folder with --output, and this one with --resume");
  }
}

void KeptRun::begin(const TrainPlan& plan, const TrainFlags& options) {
  if (!options.checkpoint_every) return;
  const auto config = config_text(options, plan, kInConfig, Unwritable::kComment);
  const auto run = folder_of(found, options, reuses_folder, rescales_steps);
  const bool same_folder = found && found->run.path() == run.path();
  lock.emplace(run.path());
  run.remove_stale_temporaries();
  if (const auto& place = plan.world.place; place.max_restarts > 0) run.write_launch(place.launch);
  require_unchanged(run, same_folder ? found->steps : std::vector<int64_t>());
  run.set_aside_after(same_folder ? found->state.trainer.steps : -1);
  if (!same_folder) run.write_beginning(config);
  log->open(run.log());
  metrics_finished = found && has_finished_metrics(found->state, plan, run);
  metrics = std::make_unique<RunMetrics>(
      run.path(), plan.metrics,
      RunMetrics::Steps{.per_epoch = plan.steps_per_epoch, .total = plan.total_steps},
      same_folder ? metrics_to_keep(*found, metrics_finished) : FileSizes{});
  plots = std::make_unique<RunPlots>([path = run.path()] { draw_run(path); });
  checkpoints = std::make_unique<CheckpointWriter>(
      run, WriterOptions{.keep = options.keep,
                         .on_error = options.on_save_error,
                         // It says how long the metrics are: they must be so after a power cut, too.
                         .before = [metrics = metrics.get()] { metrics->flush_to_disk(); },
                         .written = [log = log.get()](const auto& cost) { log->note(cost_text(cost)); }});
  if (found && !same_folder) save_first(plan, options);
  print_beginning(run, plan, options);
}

// So a run that is cut before its own first checkpoint does not begin from the start, and --on-nan has
// something to go back to.
void KeptRun::save_first(const TrainPlan& plan, const TrainFlags& options) {
  auto first = found->state;
  const auto planned = plan_fields(plan);
  const bool comparable =  // with the accuracy of later checkpoints, so that it may be the best one
      first.position.step == 0 && same_test_settings(changed_settings(first.plan, planned));
  const auto last = comparable ? first.position.last_score() : std::nullopt;
  first.plan = with_test_settings_of(found->state.plan, planned);
  save(std::move(first), plan, options, last, Stopwatch());
}

void KeptRun::save(RunState state, const TrainPlan& plan, const TrainFlags& options,
                   std::optional<double> score, Stopwatch began) {
  state.config = config_text(options, plan, kInConfig | kKept, Unwritable::kComment);
  if (metrics) state.file_bytes = metrics->sizes();
  checkpoints->save(std::move(state), score, began);
}

RunState KeptRun::newest_state(const TrainWorld& world) {
  RunState state;
  try {
    together(world, [&]() -> Json {
      if (!checkpoints) return {};
      checkpoints->finish();
      const auto& run = checkpoints->run();
      auto newest = newest_checkpoint(run, warn);
      if (!newest)
        throw WeightsError(fmt::format("no whole checkpoint is left in '{}'", run.path().native()));
      state = std::move(newest->state);
      run.set_aside_after(state.trainer.steps);
      if (metrics) metrics->cut(state.file_bytes);
      return {};
    });
  } catch (const OutputError& error) {  // not one after which all processes keep the weights
    throw Error(error.exit_code(), error.message_text(), error.hint_text());
  }
  return state;
}

void KeptRun::print_beginning(const RunFolder& run, const TrainPlan& plan, const TrainFlags& options) const {
  if (found && !is_finished(found->state, plan)) warn_of_differences(found->state, plan);
  print_found("resumed", plan, options.quiet);
  print_and_log(log.get(), options.quiet, fmt::format("run folder: {}\n", run.path().native()));
}

void KeptRun::print_found(const char* resumed, const TrainPlan& plan, bool quiet) const {
  if (!found) return;
  print_and_log(log.get(), quiet,
                fmt::format("{} from {} ({}{})\n", resumed, found->path.native(),
                            done_text(found->state.trainer.steps, plan.total_steps),
                            rescales_steps ? ", counted in the new batches" : ""));
}

void KeptRun::finish(bool quiet) {
  if (!checkpoints) return;
  plots->finish();
  checkpoints->finish();
  if (checkpoints->written() == 0) return;
  if (!is_checkpoint(checkpoints->run().checkpoint(checkpoints->written()))) {
    return warn(fmt::format("the checkpoint of step {} is not in '{}' any more", checkpoints->written(),
                            checkpoints->run().checkpoints().native()));
  }
  print_and_log(log.get(), quiet,
                fmt::format("checkpoint of step {} in {}\n", checkpoints->written(),
                            checkpoints->run().checkpoints().native()));
}

}  // namespace lockstep
