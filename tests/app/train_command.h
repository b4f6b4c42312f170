// The flags and the plan of `lockstep train`, without the program: nothing is trained.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/commands/commands.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/plan/combinations.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/app/train/settings/settings.h>

namespace lockstep::testing {

using Words = std::vector<std::string>;

inline Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// The flags after `lockstep train WORDS`, except those of processes. Throws what parsing throws, CLI11's
// errors as UsageError.
inline TrainFlags parsed_flags(const Words& words) {
  CLI::App app("", "lockstep");
  app.add_option("--color", "");
  app.fallthrough();
  auto* train = app.add_subcommand("train", "");
  TrainFlags flags;
  add_config_flag(*train);
  add_setting_flags(*train, kTrain, flags);
  apply_conventions(app);
  Words all(words.rbegin(), words.rend());  // CLI11 takes them from the back
  all.emplace_back("train");
  try {
    app.parse(std::move(all));
  } catch (const CLI::ParseError& error) {
    throw usage_error(app, error);
  }
  return flags;
}

struct Planned {
  TrainFlags flags;
  TrainPlan plan;
};

// Checks the flags, reads the data and builds the model once. Throws what these throw.
inline Planned planned(const Words& words, const TrainWorld& world = {}) {
  const auto flags = parsed_flags(words);
  check_combinations(flags, recipe_of(flags));
  return {flags, make_train_plan(flags, {}, world)};
}

// The plan that a dry run prints.
inline std::string plan_text(const Words& words) { return describe(planned(words).plan); }

}  // namespace lockstep::testing
