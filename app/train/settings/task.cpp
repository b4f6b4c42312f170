// The settings of what is trained, on which rows, and for how long.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <filesystem>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/initialize.h>
#include <lockstep/models/program.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

// The hint names `lockstep recipes`, whatever the word.
CLI::Validator known_recipe() {
  const auto known = one_of(recipe_names());
  return CLI::Validator(
      [known](const std::string& name) {
        auto problem = known(name);
        if (problem.empty()) return problem;
        problem += problem.find('\n') == std::string::npos ? '\n' : ' ';
        return problem + "'lockstep recipes' describes all of them;";
      },
      known.get_description());
}

CLI::Option* add_recipe(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.recipe,
                  "Named set of values, see 'lockstep recipes'; other flags take precedence")
      ->default_str(std::string(recipes().front().name))
      ->check(known_recipe())
      ->type_name("NAME");
}

CLI::Option* add_model(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.model, "Model to train instead of the recipe's")
      ->check(one_of(model_names()));
}

CLI::Option* add_program(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.program,
                  "Instead of a model: a program that Python has exported, by scripts/export_program.py or "
                  "torch.export.save")
      ->type_name("FILE");
}

// The name before the colon.
CLI::Validator known_loss() {
  const auto known = one_of(names_of(kProgramLossNames));
  return CLI::Validator(
      [known](const std::string& text) -> std::string {
        if (auto problem = known(text.substr(0, text.find(':'))); !problem.empty()) return problem;
        return parse_loss(text) ? "" : "names no output behind its colon: " + in_quotes(text);
      },
      known.get_description());
}

CLI::Option* add_loss(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return add_loss_flag(command, flag, flags.loss);
}

CLI::Option* add_init_from(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.init_from,
                  "Start from the weights of this safetensors file, as far as names and shapes fit: with "
                  "another number of classes all but the last layer")
      ->type_name("FILE");
}

CLI::Option* add_patience(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.patience,
                  "With --validation-share: stop after N epochs without a better validation")
      ->check(positive_int(kMaxEpochs));
}

CLI::Option* add_limit_steps(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.limit_steps, "Stop after N steps of the whole run, then evaluate as usual")
      ->check(positive_int());
}

CLI::Option* add_epochs(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.epochs, "Passes over the training rows (default: the recipe's)")
      ->check(positive_int(kMaxEpochs));
}

CLI::Option* add_seed(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.seed,
                  "Seed of the initial weights, the order of the rows and synthetic data")
      ->check(non_negative_int());
}

// With its whole path.
Json configured_program(const TrainFlags& flags, const TrainPlan&) {
  return flags.program ? Json(std::filesystem::absolute(*flags.program).native()) : Json();
}

// A checkpoint keeps its configuration in JSON, as for the data below.
Json kept_program(const TrainFlags& flags, const TrainPlan& plan) {
  auto path = configured_program(flags, plan);
  return Json::parse(json_line(path)) == path ? path : Json();
}

// With its whole path. A run that goes on has its own weights, and needs no file.
Json configured_start(const TrainFlags& flags, const TrainPlan&) {
  return flags.init_from ? Json(std::filesystem::absolute(*flags.init_from).native()) : Json();
}

Json given_loss(const TrainFlags& flags) {
  if (!flags.program) return {};
  return loss_text(flags.loss.value_or(LossChoice()));
}

constexpr Setting kTaskSettings[] = {
    {.name = "recipe",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_recipe,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.recipe; },
     .config = [](const auto& flags, const auto& plan) -> Json {
       return flags.program ? Json() : Json(plan.recipe);
     },
     .on_resume = OnResume::kRefused},
    {.name = "model",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_model,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.model; },
     .config = [](const auto& flags, const auto& plan) -> Json {
       return flags.program ? Json() : Json(plan.model);
     },
     .on_resume = OnResume::kRefused},
    {.name = "program",  // its file may have moved: a run is of its bytes
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_program,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.program ? Json(plan.program->digest()) : Json(); },
     .config = configured_program,
     .kept = kept_program,
     .on_resume = OnResume::kRefused},
    {.name = "loss",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_loss,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.loss ? Json(loss_text(*plan.loss)) : Json(); },
     .config = [](const auto& flags, const auto&) { return given_loss(flags); },
     .on_resume = OnResume::kRefused},
    {.name = "init-from",  // its file may differ in name between processes: they compare what was taken
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_init_from,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.start ? Json(plan.start->sha256) : Json(); },
     .given = [](const auto& flags, const auto&) { return or_null(flags.init_from); },
     .config = configured_start,
     .kept = [](const auto&, const auto&) { return Json(); }},
    {.name = "parameters",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.parameter_count; },
     .on_resume = OnResume::kRefused},
    {.name = "initialization",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json {
       return plan.initialization ? name_of(kInitializationNames, *plan.initialization) : "model";
     }},
    {.name = "patience",
     .commands = kTrain,
     .group = HelpGroup::kTask,
     .add = add_patience,
     .in = kInPlan | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return or_null(plan.patience); }},
    {.name = "limit-steps",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_limit_steps,
     .in = kInSweep | kInConfig,
     .given = [](const auto& flags, const auto&) { return or_null(flags.limit_steps); },
     .config = [](const auto& flags, const auto&) { return or_null(flags.limit_steps); }},
    {.name = "epochs",
     .commands = kTrain,
     .group = HelpGroup::kTask,
     .add = add_epochs,
     .in = kInPlan | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.epochs; },
     .on_resume = OnResume::kRefusedUnnamed},
    {.name = "seed",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_seed,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.trainer.seed; },
     .on_resume = OnResume::kRefused},
};

}  // namespace

// The output is looked for when the program has been read.
CLI::Option* add_loss_flag(CLI::App& command, const std::string& flag, std::optional<LossChoice>& loss) {
  const auto parse = [&loss](const CLI::results_t& words) {
    loss = parse_loss(words.front());
    return loss.has_value();
  };
  return command
      .add_option(flag, parse,
                  "Loss of a program: of its first output, or with :OUTPUT of another one. own: the program "
                  "returns it (default: classification)")
      ->check(known_loss())
      ->type_name("NAME[:OUTPUT]");
}

std::span<const Setting> task_settings() { return kTaskSettings; }

}  // namespace lockstep
