// `lockstep doctor`: checks this machine for what makes runs fail or slow, and says how to fix it.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/app/doctor/checks.h>
#include <lockstep/app/doctor/read_facts.h>
#include <lockstep/app/terminal/terminal.h>

namespace CLI {
class App;
}

namespace lockstep {

// The judgement of a check that has run.
struct CheckResult {
  std::string_view name;
  Judgement judgement;
};

// All checks, in order.
std::vector<CheckResult> judge_all(const Facts& facts);

// A line or more per check, and one that counts them; at most 80 columns where words allow it.
std::string doctor_text(std::span<const CheckResult> all, const Style& style);

// {"ok": whether no check failed, "counts": {"ok", "warn", "fail"},
//  "checks": [{"name", "health": "ok", "warn" or "fail", "text", "hint": text or null}]}
nlohmann::ordered_json doctor_json(std::span<const CheckResult> all);

void setup_doctor(CLI::App& app);

// Prints all checks. Throws FailedError, after that, if one failed.
void run_doctor(const DoctorOptions& options, const Style& style);

}  // namespace lockstep
