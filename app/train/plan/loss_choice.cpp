#include <lockstep/app/train/plan/loss_choice.h>

#include <algorithm>
#include <iterator>

namespace lockstep {

std::optional<LossChoice> parse_loss(std::string_view text) {
  const auto colon = text.find(':');
  const auto name = text.substr(0, colon);
  const auto* found = std::ranges::find(kProgramLossNames, name, &Choice<ProgramLoss>::name);
  if (found == std::end(kProgramLossNames)) return std::nullopt;
  if (colon == std::string_view::npos) return LossChoice{.loss = found->value};
  const auto output = text.substr(colon + 1);
  if (output.empty()) return std::nullopt;
  return LossChoice{.loss = found->value, .output = std::string(output)};
}

std::string loss_text(const LossChoice& choice) {
  std::string text(name_of(kProgramLossNames, choice.loss));
  return choice.output.empty() ? text : text + ":" + choice.output;
}

}  // namespace lockstep
