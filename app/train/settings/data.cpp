// The settings of the rows: which.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <filesystem>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>

namespace lockstep {
namespace {

CLI::Option* add_data(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(
          flag, flags.data.path,
          fmt::format(
              "Folder with four IDX files, as of Fashion-MNIST, with CIFAR's binary files or with a folder "
              "of PNG and JPEG images for each class; a safetensors file of train.NAME and test.NAME; or "
              "{} (default: LOCKSTEP_DATA, else Debian's folder)",
              known_data_words()))
      ->type_name("DIR|FILE");
}

CLI::Option* add_limit_train(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command.add_option(flag, flags.data.limit_train, "Use only the first N training rows")
      ->check(positive_int(kMaxRows));
}

CLI::Option* add_validation_share(CLI::App& command, const std::string& flag, TrainFlags& flags) {
  return command
      .add_option(flag, flags.validation_share,
                  "Hold out this share of the training rows, such as 0.1, and evaluate them after each epoch")
      ->check(open_fraction());
}

CLI::Option* add_limit_test(CLI::App& command, const std::string&, TrainFlags& flags) {
  return add_limit_test_flag(command, flags.data.limit_test);
}

// With its whole path.
Json configured_data(const TrainFlags& flags, const TrainPlan&) {
  const auto folder = data_folder(flags.data.path);
  return is_known_data(folder) ? folder : std::filesystem::absolute(folder).native();
}

// A checkpoint keeps its configuration in JSON, which replaces bytes that are not UTF-8: another folder.
Json kept_data(const TrainFlags& flags, const TrainPlan& plan) {
  auto folder = configured_data(flags, plan);
  return Json::parse(json_line(folder)) == folder ? folder : Json();
}

// Where rows are held out, only a plan knows how many are left.
Json asked_rows(const TrainFlags& flags, const Json& run) {
  const auto share = run.find("validation_share");
  const bool holds_out = share != run.end() && !share->is_null();
  return holds_out ? run.at("train_rows") : or_null(flags.data.limit_train);
}

constexpr Setting kDataSettings[] = {
    {.name = "data",
     .commands = kAllCommands,
     .group = HelpGroup::kTask,
     .add = add_data,
     .in = kInPlan | kInBench | kInSweep | kInConfig,  // processes compare its hash
     .planned = [](const auto& plan) -> Json { return plan.data.set.name; },
     .config = configured_data,
     .kept = kept_data,
     .on_resume = OnResume::kRefused},
    {.name = "network",  // what using it needs to know
     .in = kInPlan,
     .planned = [](const auto& plan) { return plan.facts ? to_json(*plan.facts) : Json(); }},
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
     .config = [](const auto& flags, const auto&) { return or_null(flags.data.limit_train); },
     .asked = asked_rows,
     .on_resume = OnResume::kRefused},
    {.name = "validation-share",
     .commands = kTrain,
     .group = HelpGroup::kTask,
     .add = add_validation_share,
     .in = kInPlan | kAgreed | kInConfig,
     .planned = [](const auto& plan) { return or_null(plan.validation_share); },
     .on_resume = OnResume::kRefused},
    {.name = "limit-test",
     .key = "test_rows",
     .commands = kTrain | kSweep,
     .group = HelpGroup::kTask,
     .add = add_limit_test,
     .in = kInPlan | kInSweep | kAgreed | kInConfig,
     .planned = [](const auto& plan) -> Json { return plan.data.set.test.rows; },
     .config = [](const auto& flags, const auto&) { return or_null(flags.data.limit_test); }},
};

}  // namespace

CLI::Option* add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows) {
  return command.add_option("--limit-test", rows, "Evaluate on the first N test rows only")
      ->check(positive_int(kMaxRows));
}

std::span<const Setting> data_settings() { return kDataSettings; }

}  // namespace lockstep
