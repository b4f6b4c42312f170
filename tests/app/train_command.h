// The flags of `lockstep train` that say what is trained, without the program: parsing trains nothing.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/cli.h>
#include <lockstep/app/cli/config_file.h>
#include <lockstep/app/cli/usage.h>
#include <lockstep/app/train/flags.h>

namespace lockstep::testing {

// The flags after `lockstep train WORDS`. Throws what parsing throws, CLI11's errors as UsageError.
inline TrainFlags parsed_flags(const std::vector<std::string>& words) {
  CLI::App app("", "lockstep");
  app.add_option("--color", "");
  app.fallthrough();
  auto* train = app.add_subcommand("train", "");
  TrainFlags flags;
  add_config_flag(*train);
  add_recipe_flags(*train, flags);
  add_epochs_flag(*train, flags);
  add_run_flags(*train, flags);
  add_devices_flag(*train, flags);
  add_replica_flags(*train, flags);
  add_optimizer_flags(*train, flags);
  add_engine_flags(*train, flags);
  add_compress_flag(*train, flags);
  add_check_sync_flag(*train, flags);
  train->add_option("--log-every", flags.log_every, "");
  train->add_flag("--dry-run", flags.dry_run, "");
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
