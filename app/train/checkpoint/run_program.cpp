#include <lockstep/app/train/checkpoint/run_program.h>

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include <lockstep/app/train/config/config_syntax.h>
#include <lockstep/app/train/plan/program.h>
#include <lockstep/data/train_checkpoint.h>
#include <lockstep/models/program.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

std::string text_of(const nlohmann::ordered_json& plan, const char* key) {
  return plan.contains(key) && plan.at(key).is_string() ? plan.at(key).get<std::string>() : "";
}

// Where the run has read it.
std::string path_of(const FoundCheckpoint& found) {
  const auto settings = parse_config(found.state.config, (found.path / kStateFile).string(), "train");
  const auto own = std::ranges::find(settings, "program", &ConfigSetting::key);
  if (own != settings.end()) return own->value;
  throw WeightsError(fmt::format("{} does not name the file of its program", in_quotes(found.path.native())),
                     "name it: --program FILE");
}

}  // namespace

void check_program_there(const nlohmann::ordered_json& plan, const std::string& path) {
  std::error_code ignored;
  const auto digest = text_of(plan, "program");
  const bool is_there =
      std::filesystem::status(path, ignored).type() != std::filesystem::file_type::not_found;
  if (digest.empty() || is_there) return;
  throw WeightsError(fmt::format("the checkpoint's run has the program {}, and there is no file {}", digest,
                                 in_quotes(path)),
                     "if it has moved, name it: --program FILE");
}

void check_same_program(const nlohmann::ordered_json& plan, const Program& program) {
  const auto digest = text_of(plan, "program");
  if (digest.empty() || program.digest() == digest) return;
  throw WeightsError(fmt::format("the checkpoint's run has the program {}, {} is {}", digest,
                                 in_quotes(program.path().native()), program.digest()),
                     "name the file that the run has trained: --program FILE");
}

RunProgram run_program(const FoundCheckpoint& found, const std::optional<std::string>& path) {
  const auto digest = text_of(found.state.plan, "program");
  if (digest.empty()) {
    if (!path) return {};
    throw UsageError(fmt::format("{} is of a run that has trained no program, but --program is given",
                                 in_quotes(found.path.native())),
                     "leave --program out");
  }
  const auto file = path ? *path : path_of(found);
  check_program_there(found.state.plan, file);
  auto program = open_program(file);
  check_same_program(found.state.plan, *program);
  return {std::move(program), parse_loss(text_of(found.state.plan, "loss")).value_or(LossChoice())};
}

}  // namespace lockstep
