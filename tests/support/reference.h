// Reference values computed by Python torch (tests/reference/).
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace lockstep::testing {

// For tests that are compiled with LOCKSTEP_REFERENCE_DIR.
inline nlohmann::json reference(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(std::string(LOCKSTEP_REFERENCE_DIR) + "/" + name));
}

}  // namespace lockstep::testing
