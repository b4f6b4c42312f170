#include <lockstep/app/doctor/doctor.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/files/json_file.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/support/choices.h>
#include <lockstep/support/counted.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr size_t kDoctorWidth = 80;  // columns
constexpr size_t kTextColumn = 21;   // health takes 6, the name 15

constexpr Choice<Health> kHealthNames[] = {
    {"ok", Health::kOk}, {"warn", Health::kWarn}, {"fail", Health::kFail}};

std::string shown_health(Health health, const Style& style) {
  const auto padded = fmt::format("{:6}", name_of(kHealthNames, health));
  if (health == Health::kOk) return style.green(padded);
  return health == Health::kWarn ? style.yellow(padded) : style.red(padded);
}

int64_t count_of(std::span<const CheckResult> all, Health health) {
  return std::count_if(all.begin(), all.end(),
                       [&](const auto& one) { return one.judgement.health == health; });
}

}  // namespace

std::vector<CheckResult> judge_all(const Facts& facts) {
  std::vector<CheckResult> all;
  for (const auto& [name, judge] : doctor_checks()) all.push_back({name, judge(facts)});
  return all;
}

std::string doctor_text(std::span<const CheckResult> all, const Style& style) {
  std::string out;
  for (const auto& [name, judgement] : all) {
    out += fmt::format("{}{:15}{}\n", shown_health(judgement.health, style), name,
                       wrapped(judgement.text, kTextColumn, kDoctorWidth));
    if (judgement.hint.empty()) continue;
    out += std::string(kTextColumn, ' ') + wrapped("-> " + judgement.hint, kTextColumn, kDoctorWidth) + "\n";
  }
  return out + fmt::format("{}: {} ok, {} warn, {} fail\n",
                           counted(static_cast<int64_t>(all.size()), "check"), count_of(all, Health::kOk),
                           count_of(all, Health::kWarn), count_of(all, Health::kFail));
}

nlohmann::ordered_json doctor_json(std::span<const CheckResult> all) {
  auto checks = nlohmann::ordered_json::array();
  for (const auto& [name, judgement] : all) {
    checks.push_back({{"name", name},
                      {"health", name_of(kHealthNames, judgement.health)},
                      {"text", judgement.text},
                      {"hint", nullptr}});
    if (!judgement.hint.empty()) checks.back()["hint"] = judgement.hint;
  }
  nlohmann::ordered_json counts;
  for (const auto& [name, health] : kHealthNames) counts[std::string(name)] = count_of(all, health);
  return {{"ok", count_of(all, Health::kFail) == 0}, {"counts", counts}, {"checks", checks}};
}

void setup_doctor(CLI::App& app) {
  auto* doctor = app.add_subcommand("doctor", "Check this machine for what makes runs fail or slow");
  const auto options = std::make_shared<DoctorOptions>();
  doctor
      ->add_option("--data", options->data,
                   fmt::format("As --data of train: a folder, a safetensors file, or {} (default: "
                               "LOCKSTEP_DATA, else Debian's folder)",
                               known_data_words()))
      ->type_name("DIR|FILE");
  doctor->add_option("--output", options->output, "Folder in which runs are to be kept")->type_name("DIR");
  doctor
      ->add_option("--master", options->master,
                   "Check the port and the way to this address, as of train --master")
      ->type_name("HOST:PORT");
  doctor->add_flag("--json", options->json, "Print the checks as JSON");
  doctor->callback(
      [options, doctor] { run_doctor(*options, Terminal(STDOUT_FILENO, color_mode(*doctor)).style()); });
}

void run_doctor(const DoctorOptions& options, const Style& style) {
  const auto all = judge_all(read_facts(options));
  write_stdout(options.json ? json_line(doctor_json(all)) : doctor_text(all, style));
  std::vector<std::string_view> failed;
  for (const auto& [name, judgement] : all) {
    if (judgement.health == Health::kFail) failed.push_back(name);
  }
  if (failed.empty()) return;
  throw FailedError(fmt::format("{} of {} failed: {}", failed.size(),
                                counted(static_cast<int64_t>(all.size()), "check"), fmt::join(failed, ", ")),
                    "the lines after -> say how to fix them");
}

}  // namespace lockstep
