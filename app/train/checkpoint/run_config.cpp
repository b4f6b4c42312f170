#include <lockstep/app/train/checkpoint/run_config.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <lockstep/app/files/json.h>
#include <lockstep/app/processes/assemble.h>
#include <lockstep/app/train/checkpoint/run_program.h>
#include <lockstep/app/train/checkpoint/same_run.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/app/train/settings/settings.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/models/program.h>
#include <lockstep/parallel/devices.h>

namespace lockstep {
namespace {

const Setting* setting_named(std::string_view name) {
  const auto& all = all_settings();
  const auto found = std::ranges::find_if(all, [&](const auto& setting) { return name == setting.name; });
  return found == all.end() ? nullptr : &*found;
}

bool is_given(const CLI::App& train, const Setting& setting) {
  return setting.commands & kTrain && train.get_option(std::string("--") + setting.name)->count() > 0;
}

// The value of a flag, as the plan has such a value. What a flag only describes, such as names by a pattern
// or weights by a rule, is compared when there is a plan.
Json as_planned(const CLI::Option& flag, const Json& saved) {
  if (saved.is_array() || (saved.is_null() && flag.as<std::string>() == "none")) return saved;
  if (saved.is_boolean()) return flag.as<bool>();
  if (saved.is_number_integer()) return flag.as<uint64_t>();
  if (saved.is_number()) return flag.as<double>();
  return flag.as<std::string>();
}

// The value that the plan of this run will have. Throws WeightsError for another program than the run's.
Json asked_value(const Setting& setting, const TrainFlags& given, const CLI::Option& flag, const Json& run) {
  if (setting.asked) return setting.asked(given, run);
  if (std::string_view(setting.name) != "program") return as_planned(flag, run.at(key_of(setting)));
  const auto path = flag.as<std::string>();
  check_program_there(run, path);
  const auto program = open_program(path);
  check_same_program(run, *program);
  return program->digest();
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
    planned[key] = asked_value(setting, given, *train.get_option(std::string("--") + setting.name), saved);
  }
  check_same_run(saved, planned, given.resume_anyway);
}

// The settings of the run. Their lines are those of a text that no file has.
std::vector<ConfigSetting> settings_of(const Json& run, std::string_view section) {
  const auto file = run.at("file").get<std::string>();
  auto settings = parse_config(run.at("text").get<std::string>(), file, section);
  for (auto& each : settings) each.line = 0;
  return settings;
}

// The devices that this process of the run had.
Json devices_of(const Json& saved, int process) {
  const auto& replicas = saved.at("replicas");
  const auto& devices = saved.at("devices");
  const auto first = std::accumulate(replicas.begin(), replicas.begin() + process, int64_t{0},
                                     [](int64_t sum, const Json& each) { return sum + each.get<int64_t>(); });
  const auto end = first + replicas.at(static_cast<size_t>(process)).get<int64_t>();
  return Json(devices.begin() + first, devices.begin() + end);
}

bool has_moved(const ConfigSetting& data) {
  const char* variable = std::getenv("LOCKSTEP_DATA");
  std::error_code ignored;
  return variable && *variable && !is_known_data(data.value) && !std::filesystem::exists(data.value, ignored);
}

}  // namespace

Json run_config(const FoundCheckpoint& found) {
  if (found.state.config.empty()) return {};
  return {
      {"text", found.state.config}, {"file", (found.path / kStateFile).string()}, {"plan", found.state.plan}};
}

RunData run_data(const FoundCheckpoint& found) {
  RunData run;
  CLI::App app;
  auto& rows = *app.add_subcommand("train");  // with the flags alone that say how data are read
  add_data_flags(rows, run.data);
  const auto file = (found.path / kStateFile).string();
  std::vector<ConfigSetting> of_rows;
  for (const auto& each : parse_config(found.state.config, file, "train")) {
    if (rows.get_option_no_throw("--" + each.key)) of_rows.push_back(each);
    if (each.key == "data" && !has_moved(each)) run.data.path = each.value;
    if (each.key == "seed") run.seed = std::strtoull(each.value.c_str(), nullptr, 10);
  }
  apply_settings(of_rows, file, rows);
  const auto& plan = found.state.plan;
  if (plan.contains("test_rows") && plan.contains("test_data_hash")) {
    run.test_rows = plan.at("test_rows").get<int64_t>();
    run.test_hash = plan.at("test_data_hash").get<std::string>();
  }
  return run;
}

bool resumes_in_place(const Json& run, const World& place, const TrainFlags& given, const CLI::App& train) {
  const auto& saved = run.at("plan");
  if (saved.value("processes", Json()) != place.processes) return false;
  const auto settings = settings_of(run, train.get_name());
  const bool has_devices = std::ranges::find(settings, "devices", &ConfigSetting::key) != settings.end();
  if (has_devices && train.get_option("--devices")->count() == 0) return true;
  auto names = Json::array();
  for (const auto& device : usable_devices(local_spec(given.devices, place, visible_gpus()))) {
    names.push_back(device.str());
  }
  return names == devices_of(saved, place.process);
}

void apply_run_config(const Json& run, bool in_place, const TrainFlags& given, CLI::App& train) {
  check_given(run.at("plan"), given, train);
  auto settings = settings_of(run, train.get_name());
  const bool other_schedule =
      given.schedule && name_of(kScheduleNames, *given.schedule) != run.at("plan").value("schedule", "");
  const bool rises_by_itself = other_schedule && given.schedule == Schedule::kOneCycle;
  std::erase_if(settings, [&](const ConfigSetting& each) {
    if (each.key == "limit-steps") return true;  // of the start that it has ended
    if (each.key == "data") return has_moved(each);
    if (each.key == "warmup-epochs" && rises_by_itself) return true;
    const auto* setting = setting_named(each.key);
    if (!setting) return false;
    return (setting->depends_on_place && !in_place) || (setting->of_schedule && other_schedule);
  });
  apply_settings(settings, run.at("file").get<std::string>(), train);
}

}  // namespace lockstep
