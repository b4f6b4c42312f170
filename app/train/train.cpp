#include <lockstep/app/train/train.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>
#include <span>
#include <string>

#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/processes/join_world.h>
#include <lockstep/app/processes/process_flags.h>
#include <lockstep/app/processes/together.h>
#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/terminal/interrupt.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/assemble_run.h>
#include <lockstep/app/train/checkpoint/kept_run.h>
#include <lockstep/app/train/checkpoint/run_config.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/config/config_text.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/plan_memory.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/progress/progress_display.h>
#include <lockstep/app/train/recorder.h>
#include <lockstep/app/train/run.h>
#include <lockstep/app/train/run_outputs.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

void check_json(const TrainFlags& flags) {
  if (!flags.json || flags.dry_run || flags.print_config) return;
  throw UsageError("--json prints the plan of a --dry-run, this run trains",
                   "use --metrics - to get the run as JSON lines, or add --dry-run");
}

// Returns what a stopped run waits for.
std::string awaited(const TrainFlags& flags) {
  return flags.save || flags.trace || wants_folder(flags) ? "step and files" : "the current step";
}

// A named run goes on with its own configuration, which process 0 has. train: the command, into whose options
// the flags are parsed.
void take_own_configuration(TrainFlags& flags, CLI::App& train, const TrainWorld& world, KeptRun& kept) {
  const bool named = flags.resume && *flags.resume != "auto";
  const auto told = together(world, [&]() -> Json {
    if (!world.leads() || !named) return {};
    kept.find(flags, world.place);
    return run_config(*kept.found);
  });
  const auto& run = told.front();
  if (run.is_null()) return;
  const auto places =
      together(world, [&]() -> Json { return resumes_in_place(run, world.place, flags, train); });
  const bool in_place = std::ranges::all_of(places, [](const Json& each) { return each.get<bool>(); });
  together(world, [&]() -> Json {
    apply_run_config(run, in_place, flags, train);
    return {};
  });
}

// A run that goes on keeps the numbers that it began with: more or less memory would measure other images.
void keep_normalization(TrainFlags& flags, const TrainWorld& world, const KeptRun& kept) {
  const auto told = together(world, [&]() -> Json {
    if (!world.leads() || !kept.found) return {};
    return kept.found->state.plan.value("normalize", Json());
  });
  const auto& numbers = told.front();
  if (flags.normalize.automatic && numbers.is_string()) {
    flags.normalize = parse_normalize(numbers.get<std::string>());
  }
}

// Checks everything before the first step. A refusal in one process ends all of them. Process 0 opens its
// files before the data are read; until the run begins they leave nothing behind.
TrainPlan prepare(TrainFlags& flags, TrainWorld& world, RunOutputs& outputs) {
  assemble_run(world, flags, [&] {
    check_json(flags);
    check_combinations(flags, recipe_of(flags));
    if (world.leads()) check_progress_display(flags);
    if (metrics_on_stdout(flags)) flags.quiet = true;
    if (world.leads()) outputs.open(flags, world.place);
  });
  keep_normalization(flags, world, outputs.kept);
  TrainPlan plan;
  agree_on_settings(world, [&] {
    plan = make_train_plan(flags, {}, world);
    outputs.kept.fit_plan(plan, flags);
    need_memory_for(std::span(&plan, 1), [&] { return outputs.kept.has_checkpoint_files(flags); });
    if (!world.single_process()) InterruptGuard::stop_if_signalled("before the first step");
    return agreed_fields(flags, plan);
  });
  return plan;
}

// Returns the state that all processes go on from, which process 0 has; empty for a run from the start. It
// leaves `kept`: nothing else would free its tensors before the run ends.
std::optional<RunState> take_resumed_state(const TrainFlags& flags, KeptRun& kept) {
  if (!kept.found) return flags.resume ? std::optional(RunState()) : std::nullopt;
  auto state = kept.found->state;
  kept.found->state.trainer = TrainState();
  kept.found->state.trainer.steps = state.trainer.steps;
  return state;
}

// Composes a run of its parts, in every process. Several processes have joined.
void run_train(TrainWorld& world, TrainFlags& flags, CLI::App& train) {
  const InterruptGuard interrupt(awaited(flags));
  RunOutputs outputs;
  take_own_configuration(flags, train, world, outputs.kept);
  const auto plan = prepare(flags, world, outputs);
  if (flags.print_config) {
    if (world.leads()) write_stdout(config_text(flags, plan));
    return leave_together(world);
  }
  Recorder record(plan, flags, color_mode(train), outputs);
  record.plan();
  if (world.single_process()) InterruptGuard::stop_if_signalled("before the first step");
  if (flags.dry_run) {
    outputs.kept.print_found("would resume", plan, flags.quiet || flags.json);
    return leave_together(world);
  }
  together(world, [&]() -> Json {
    if (world.leads()) outputs.kept.begin(plan, flags);
    return {};
  });
  record.result(run_and_keep(plan, flags, record, outputs, take_resumed_state(flags, outputs.kept)));
  // Several processes have agreed for the last time before they left each other.
  if (world.single_process()) InterruptGuard::stop_if_signalled("after the run was done");
}

}  // namespace

void setup_train(CLI::App& app) {
  auto* train = app.add_subcommand("train", "Train a recipe on one device or several");
  const auto flags = std::make_shared<TrainFlags>();
  const auto processes = std::make_shared<ProcessFlags>();
  add_config_flag(*train);
  set_group(*train, HelpGroup::kTask, {"--config"});
  add_setting_flags(*train, kTrain, *flags);
  add_process_flags(*train, *processes);
  train->callback([flags, processes, train] {
    flags->config = config_path(*train);
    in_joined_world(*processes, awaited(*flags),
                    [&](TrainWorld& world) { run_train(world, *flags, *train); });
  });
}

}  // namespace lockstep
