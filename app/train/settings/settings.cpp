#include <lockstep/app/train/settings/settings.h>

#include <CLI/CLI.hpp>

#include <algorithm>

namespace lockstep {

const std::vector<Setting>& all_settings() {
  static const auto settings = [] {
    std::vector<Setting> all;
    for (const auto& table : {task_settings(), data_settings(), image_settings(), replica_settings(),
                              update_settings(), engine_settings(), output_settings()}) {
      all.insert(all.end(), table.begin(), table.end());
    }
    return all;
  }();
  return settings;
}

std::string key_of(const Setting& setting) {
  if (setting.key) return setting.key;
  std::string key = setting.name;
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::vector<std::string> changeable_settings() {
  std::vector<std::string> names;
  for (const auto& setting : all_settings()) {
    if (setting.on_resume == OnResume::kRefusedUnnamed) names.emplace_back(setting.name);
  }
  return names;
}

void add_setting_flags(CLI::App& command, unsigned command_kind, TrainFlags& flags) {
  for (const auto& setting : all_settings()) {
    if (!(setting.commands & command_kind)) continue;
    setting.add(command, std::string("--") + setting.name, flags)->group(heading_of(setting.group));
  }
}

nlohmann::ordered_json plan_fields(const TrainPlan& plan) {
  nlohmann::ordered_json fields;
  for (const auto& setting : all_settings()) {
    if (setting.in & kInPlan) fields[key_of(setting)] = setting.planned(plan);
  }
  return fields;
}

nlohmann::ordered_json agreed_fields(const TrainFlags& flags, const TrainPlan& plan) {
  const auto& recipe = recipe_of(flags);
  nlohmann::ordered_json fields;
  for (const auto& setting : all_settings()) {
    if (!(setting.in & kAgreed)) continue;
    fields[key_of(setting)] = setting.planned ? setting.planned(plan) : setting.given(flags, recipe);
  }
  return fields;
}

nlohmann::ordered_json shared_fields(unsigned in, const TrainFlags& flags, const TrainPlan& plan) {
  const auto& recipe = recipe_of(flags);
  nlohmann::ordered_json fields;
  for (const auto& setting : all_settings()) {
    if (!(setting.in & in)) continue;
    fields[key_of(setting)] = setting.given ? setting.given(flags, recipe) : setting.planned(plan);
  }
  return fields;
}

}  // namespace lockstep
