// A sentence drawn from measurements.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

struct Finding {
  std::string sentence;
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  // the figures in the sentence
};

}  // namespace lockstep
