// Reference values computed by Python torch (tests/reference/).
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include <lockstep/tests/support/reference_path.h>

namespace lockstep::testing {

inline nlohmann::json reference(const std::string& name) {
  return nlohmann::json::parse(std::ifstream(reference_path(name)));
}

}  // namespace lockstep::testing
