// The loss of an exported program, as --loss names it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/support/choices.h>

namespace lockstep {

enum class ProgramLoss {
  kClassification,  // cross-entropy of a row's class
  kCrossEntropy,    // over tokens
  kMse,
  kSmoothL1,
  kOwn,  // the program returns it
};

inline constexpr Choice<ProgramLoss> kProgramLossNames[] = {{"classification", ProgramLoss::kClassification},
                                                            {"cross_entropy", ProgramLoss::kCrossEntropy},
                                                            {"mse", ProgramLoss::kMse},
                                                            {"smooth_l1", ProgramLoss::kSmoothL1},
                                                            {"own", ProgramLoss::kOwn}};

struct LossChoice {
  ProgramLoss loss = ProgramLoss::kClassification;
  std::string output = {};  // the program's output that it is of; empty: the first

  bool operator==(const LossChoice&) const = default;
};

// Parses NAME or NAME:OUTPUT, such as "mse" or "cross_entropy:logits". Returns nothing for another name, and
// where OUTPUT is empty.
std::optional<LossChoice> parse_loss(std::string_view text);

// "mse:price". The inverse of parse_loss().
std::string loss_text(const LossChoice& choice);

}  // namespace lockstep
