// A setting of a training run. Each is one row of a table in this folder: its flag, and what becomes of its
// value. Adding a setting is adding a row.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include <lockstep/app/cli/help_group.h>
#include <lockstep/app/files/json.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/app/train/plan/recipe.h>
#include <lockstep/support/choices.h>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lockstep {

// Where the value of a setting appears: in the JSON of a plan, in that of bench step and bench scaling, in
// that of a sweep, in what all processes of a run must have in common, in a configuration, and only in that
// which a run's checkpoints keep.
inline constexpr unsigned kInPlan = 1, kInBench = 2, kInSweep = 4, kAgreed = 8, kInConfig = 16, kKept = 32;

// Which commands have the flag: train, bench step and bench scaling, sweep.
inline constexpr unsigned kTrain = 1, kBench = 2, kSweep = 4;
inline constexpr unsigned kAllCommands = kTrain | kBench | kSweep;

// The behaviour of a resumed run if its value differs from the checkpoint's.
enum class OnResume {
  kTaken,           // takes it
  kRefused,         // throws: it would be another training
  kRefusedUnnamed,  // throws, unless --resume-anyway names the setting
  kChangesBits,     // warns: the next steps may differ in their last bits
};

struct Setting {
  const char* name;           // "bucket-mb": of the flag, of --resume-anyway, in a configuration
  const char* key = nullptr;  // in JSON; null: the name with '_' instead of '-'
  unsigned commands = 0;      // kTrain, ...; 0: it has no flag
  HelpGroup group = HelpGroup::kTask;
  // Adds the flag, "--bucket-mb". It is parsed into the TrainFlags, which outlive the command.
  CLI::Option* (*add)(CLI::App&, const std::string& flag, TrainFlags&) = nullptr;

  unsigned in = 0;  // kInPlan, ...
  Json (*planned)(const TrainPlan&) = nullptr;
  // The value for benchmarks and sweeps, whose plans derive different values. Null: `planned`. Processes
  // compare this value if `planned` is null.
  Json (*given)(const TrainFlags&, const Recipe&) = nullptr;
  // The value in a configuration; JSON's null: it is left out. Null: the planned one.
  Json (*config)(const TrainFlags&, const TrainPlan&) = nullptr;
  // The same in the configuration that a run's checkpoints keep: the run may go on on another machine, where
  // what nobody gave is found anew. Null: `config`.
  Json (*kept)(const TrainFlags&, const TrainPlan&) = nullptr;
  // The value that a plan of these flags will have, for a run that goes on: it is compared with the run's
  // before there is a plan. run: the plan that the run has kept, whose value stands for one that only a plan
  // can tell. Null: the flag's text as that value's type.
  Json (*asked)(const TrainFlags&, const Json& run) = nullptr;
  // same_run.cpp has the exceptions: devices, epochs, split, and batch-size and lr, which the checkpoint
  // gives.
  OnResume on_resume = OnResume::kTaken;
  bool of_schedule = false;       // of some schedules: null with others, and another schedule brings its own
  bool is_fact = false;           // of the plan, which nobody sets: another value changes nothing
  bool depends_on_place = false;  // on devices and processes: on others a resumed run finds its own value
};

// The tables. All settings together: settings.h.
std::span<const Setting> task_settings();
std::span<const Setting> data_settings();
std::span<const Setting> image_settings();
std::span<const Setting> replica_settings();
std::span<const Setting> update_settings();
std::span<const Setting> engine_settings();
std::span<const Setting> output_settings();

template <class Enum, size_t kCount>
Json named(const Choice<Enum> (&choices)[kCount], Enum value) {
  return name_of(choices, value);
}

}  // namespace lockstep
