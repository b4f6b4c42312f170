// The flags of `lockstep train` except those of processes, without the program: parsing trains nothing.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/commands/commands.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/settings/settings.h>

namespace lockstep::testing {

// The flags after `lockstep train WORDS`. Throws what parsing throws, CLI11's errors as UsageError.
inline TrainFlags parsed_flags(const std::vector<std::string>& words) {
  CLI::App app("", "lockstep");
  app.add_option("--color", "");
  app.fallthrough();
  auto* train = app.add_subcommand("train", "");
  TrainFlags flags;
  add_config_flag(*train);
  add_setting_flags(*train, kTrain, flags);
  apply_conventions(app);
  std::vector<std::string> all(words.rbegin(), words.rend());  // CLI11 takes them from the back
  all.emplace_back("train");
  try {
    app.parse(std::move(all));
  } catch (const CLI::ParseError& error) {
    throw usage_error(app, error);
  }
  return flags;
}

}  // namespace lockstep::testing
