#include <lockstep/app/checkpoint/run_config.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/app/checkpoint/same_run.h>
#include <lockstep/app/cli/config_file.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/parallel/devices.h>

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

const Setting* setting_named(std::string_view name) {
  const auto& all = all_settings();
  const auto found = std::ranges::find_if(all, [&](const auto& setting) { return name == setting.name; });
  return found == all.end() ? nullptr : &*found;
}

bool is_given(const CLI::App& train, const Setting& setting) {
  return setting.of & kTrain && train.get_option(std::string("--") + setting.name)->count() > 0;
}

// The word of a flag, as the plan has such a value.
Json as_planned(const std::string& word, const Json& saved) {
  if (saved.is_boolean()) return word == "true";
  if (!saved.is_number()) return word;
  if (saved.is_number_integer()) return std::strtoull(word.c_str(), nullptr, 10);
  return std::strtod(word.c_str(), nullptr);
}

// Before the flags are combined with those of the run: an error of a combination would not name the cause.
void check_given(const Json& saved, const TrainFlags& given, const CLI::App& train) {
  auto planned = saved;
  for (const auto& setting : all_settings()) {
    const auto key = key_of(setting);
    const bool compared =
        setting.on_resume == OnResume::kRefused || setting.on_resume == OnResume::kRefusedUnnamed;
    // A data set's flag is its folder, and its name in the plan may be another.
    if (!compared || std::string_view(setting.name) == "data" || !saved.contains(key)) continue;
    if (!is_given(train, setting)) continue;
    const auto* option = train.get_option(std::string("--") + setting.name);
    planned[key] = as_planned(option->results().back(), saved.at(key));
  }
  check_same_run(saved, planned, given.resume_anyway);
}

// Returns true if the run goes on where it was: on as many processes, and on its devices.
bool in_same_place(std::span<const ConfigSetting> settings, const Json& saved, const World& place,
                   const TrainFlags& given, const CLI::App& train) {
  if (saved.value("processes", Json()) != place.processes) return false;
  const auto devices = std::ranges::find(settings, "devices", &ConfigSetting::key);
  if (devices == settings.end() || train.get_option("--devices")->count() == 0) return true;
  return spec_of(usable_devices(local_spec(given.devices, place, visible_gpus()))) == devices->value;
}

bool has_moved(const ConfigSetting& data) {
  const char* variable = std::getenv("LOCKSTEP_DATA");
  std::error_code ignored;
  return variable && *variable && data.value != kSyntheticData &&
         !std::filesystem::exists(data.value, ignored);
}

}  // namespace

Json run_config(const FoundCheckpoint& found) {
  if (found.state.config.empty()) return {};
  return {
      {"text", found.state.config}, {"file", (found.path / kStateFile).string()}, {"plan", found.state.plan}};
}

RunData run_data(const FoundCheckpoint& found) {
  RunData run;
  for (const auto& each : parse_config(found.state.config, (found.path / kStateFile).string(), "train")) {
    if (each.key == "data" && !has_moved(each)) run.data = each.value;
    if (each.key == "seed") run.seed = std::strtoull(each.value.c_str(), nullptr, 10);
  }
  return run;
}

void take_run_config(const Json& run, const World& place, const TrainFlags& given, CLI::App& train) {
  const auto& saved = run.at("plan");
  check_given(saved, given, train);
  const auto file = run.at("file").get<std::string>();
  auto settings = parse_config(run.at("text").get<std::string>(), file, train.get_name());
  const bool same_place = in_same_place(settings, saved, place, given, train);
  std::erase_if(settings, [&](const ConfigSetting& each) {
    if (each.key == "limit-steps") return true;  // of the start that it has ended
    if (each.key == "data") return has_moved(each);
    const auto* setting = setting_named(each.key);
    return setting && setting->of_place && !same_place;
  });
  apply_settings(settings, file, train);
}

}  // namespace lockstep
