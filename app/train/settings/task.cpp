// The settings of what is trained, on which images, and for how long.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <filesystem>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/models/factory.h>
#include <lockstep/models/initialize.h>

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
      ->check(known_recipe())
      ->type_name("NAME");
}

CLI::Option* add_model(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.model, "Model to train instead of the recipe's")
      ->check(one_of(model_names()));
}

CLI::Option* add_data(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(
          flag, flags.data,
          fmt::format("Folder with four IDX files, as of Fashion-MNIST, or {} (default: LOCKSTEP_DATA, "
                      "else Debian's folder)",
                      known_data_words()))
      ->type_name("DIR");
}

CLI::Option* add_limit_train(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.limit_train, "Use only the first N training images")
      ->check(positive_int(kMaxRows));
}

CLI::Option* add_limit_test(CLI::App& command, const std::string&, TrainFlags& flags) {
  return add_limit_test_flag(command, flags.limit_test);
}

CLI::Option* add_limit_steps(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.limit_steps, "Stop after N steps of the whole run, then evaluate as usual")
      ->check(positive_int());
}

CLI::Option* add_epochs(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.epochs, "Passes over the training images (default: the recipe's)")
      ->check(positive_int(kMaxEpochs));
}

CLI::Option* add_seed(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.trainer.seed,
                  "Seed of the initial weights, the order of the images and synthetic data")
      ->check(non_negative_int());
}

// With its whole path.
Json configured_data(const TrainFlags& flags, const TrainPlan&) {
  const auto folder = data_folder(flags.data);
  return is_known_data(folder) ? folder : std::filesystem::absolute(folder).native();
}

// A checkpoint keeps its configuration in JSON, which replaces bytes that are not UTF-8: another folder.
Json kept_data(const TrainFlags& flags, const TrainPlan& plan) {
  auto folder = configured_data(flags, plan);
  return Json::parse(json_line(folder)) == folder ? folder : Json();
}

constexpr Setting kTaskSettings[] = {
    {.name = "recipe",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_recipe,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.recipe; },
     .on_resume = OnResume::kRefused},
    {.name = "model",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_model,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.model; },
     .on_resume = OnResume::kRefused},
    {.name = "parameters",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.parameter_count; },
     .on_resume = OnResume::kRefused},
    {.name = "initialization",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json {
       return plan.initialization ? name_of(kInitializationNames, *plan.initialization) : "model";
     }},
    {.name = "data",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_data,
     .in = kInPlan | kInBench | kInSweep | kInConfig,  // processes compare its hash
     .planned = [](const auto& plan) -> Json { return plan.data.set.name; },
     .config = configured_data,
     .kept = kept_data,
     .on_resume = OnResume::kRefused},
    {.name = "data-origin",
     .in = kInBench | kInSweep,
     .planned = [](const auto& plan) -> Json { return plan.data.origin; }},
    {.name = "limit-train",
     .key = "train_rows",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_limit_train,
     .in = kInPlan | kInBench | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.data.set.train.rows; },
     .config = [](const auto& flags, const auto&) { return or_null(flags.limit_train); },
     .on_resume = OnResume::kRefused},
    {.name = "limit-test",
     .key = "test_rows",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_limit_test,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.data.set.test.rows; },
     .config = [](const auto& flags, const auto&) { return or_null(flags.limit_test); }},
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
    {.name = "train-data-hash",  // after what explains a difference better
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.data.train_hash; },
     .on_resume = OnResume::kRefused},
    {.name = "test-data-hash",
     .in = kInPlan | kAgreed,
     .planned = [](const auto& plan) -> Json { return plan.data.test_hash; }},
};

}  // namespace

CLI::Option* add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows) {
  return command.add_option("--limit-test", rows, "Evaluate on the first N test images only")
      ->check(positive_int(kMaxRows));
}

std::span<const Setting> task_settings() { return kTaskSettings; }

}  // namespace lockstep
