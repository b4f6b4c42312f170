// The checks of `lockstep doctor`. Each judges facts, and reads nothing itself.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <lockstep/app/doctor/facts.h>

namespace lockstep {

enum class Health { kOk, kWarn, kFail };

struct Judgement {
  Health health = Health::kOk;
  std::string text = {};  // the finding, in one line
  std::string hint = {};  // how to fix it; empty where all is well
};

struct Check {
  std::string_view name;  // unique
  Judgement (*judge)(const Facts& facts);
};

// In the order of the output.
std::span<const Check> doctor_checks();

// Groups of them, for doctor_checks().
std::span<const Check> gpu_checks();
std::span<const Check> limit_checks();
std::span<const Check> storage_checks();
std::span<const Check> cpu_checks();
std::span<const Check> surroundings_checks();

}  // namespace lockstep
