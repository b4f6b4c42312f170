#include <lockstep/app/train/config/config_text.h>

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include <lockstep/app/machine/version.h>
#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/app/train/settings/settings.h>

namespace lockstep {
namespace {

std::string comment(std::string_view words) { return fmt::format("# {}\n", words); }

// Numbers with all their bits.
std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? fmt::format("{}", value.get<double>()) : value.dump();
}

Json value_of(const Setting& setting, const TrainFlags& flags, const TrainPlan& plan, bool kept) {
  if (kept && setting.kept) return setting.kept(flags, plan);
  return setting.config ? setting.config(flags, plan) : setting.planned(plan);
}

std::string head_of(const TrainPlan& plan) {
  auto text = comment(version_text());
  if (!plan.world.single_process()) {
    text += comment(fmt::format("of {} processes, with the devices {}: start as many",
                                plan.world.place.processes, plan.device_lists()));
  }
  const char* capability = std::getenv("LOCKSTEP_CPU_CAPABILITY");
  if (capability && *capability) text += comment(fmt::format("LOCKSTEP_CPU_CAPABILITY={}", capability));
  return text;
}

}  // namespace

std::string config_text(const TrainFlags& flags, const TrainPlan& plan, unsigned in, Unwritable unwritable) {
  auto text = head_of(plan);
  for (const auto& setting : all_settings()) {
    if (!(setting.in & in)) continue;
    const auto value = value_of(setting, flags, plan, in & kKept);
    if (value.is_null()) continue;
    const auto line = find_config_line(setting.name, value_text(value));
    if (!line && unwritable == Unwritable::kComment) {
      text += comment(fmt::format("{} has a name that is not UTF-8: give it again", setting.name));
    } else {
      text += line ? *line : config_line(setting.name, value_text(value));  // throws
    }
  }
  return text;
}

}  // namespace lockstep
