// All settings of a training run: the flags of the commands that train, and the values of a run by name.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/train/settings/setting.h>

namespace lockstep {

// In the order of the help. A setting comes after those that it depends on: an error names the first setting
// in which processes differ.
const std::vector<Setting>& all_settings();

// The setting's name in JSON.
std::string key_of(const Setting& setting);

// The settings that --resume-anyway takes from the command line: "lr", "batch-size", "epochs", ...
std::vector<std::string> changeable_settings();

// Adds the flags that this command has, each below its heading of the help. command_kind: kTrain, kBench or
// kSweep. flags: outlive the command.
void add_setting_flags(CLI::App& command, unsigned command_kind, TrainFlags& flags);

// Adds --limit-test, for a command that has no other of these flags. rows: outlives the command.
CLI::Option* add_limit_test_flag(CLI::App& command, std::optional<int64_t>& rows);

// Adds --test-share, --image-size, --synthetic-shape, --data-memory, --workers and --skip-unreadable, for
// such a command. flags: outlive the command.
void add_data_flags(CLI::App& command, DataFlags& flags);

// Adds --loss of an exported program. loss: outlives the command.
CLI::Option* add_loss_flag(CLI::App& command, const std::string& flag, std::optional<LossChoice>& loss);

// All values of the run.
nlohmann::ordered_json plan_fields(const TrainPlan& plan);

// Returns the settings that all processes of a run must have in common. Their devices, threads and files may
// differ.
nlohmann::ordered_json agreed_fields(const TrainFlags& flags, const TrainPlan& plan);

// Returns the settings that all measurements of a benchmark (kInBench) or all cells of a sweep (kInSweep)
// share. For a value that plans derive from their devices, it gives the flag's value, else the recipe's.
// plan: any of the plans.
nlohmann::ordered_json shared_fields(unsigned in, const TrainFlags& flags, const TrainPlan& plan);

}  // namespace lockstep
