// What a network was trained on, as far as using it needs to know: kept in plans and in files of weights.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct NetworkFacts {
  std::string input;                 // the name of the one input
  std::vector<int64_t> row_shape;    // of a row: of images (channels, height, width)
  bool bytes = false;                // of uint8 in the data: lockstep's models get them divided by 255
  std::vector<std::string> classes;  // their names

  bool operator==(const NetworkFacts&) const = default;
};

// {"input": "images", "row_shape": [1, 28, 28], "bytes": true, "classes": ["0", ...]}
nlohmann::ordered_json to_json(const NetworkFacts& facts);

// The inverse; nothing for anything else, such as null.
std::optional<NetworkFacts> read_facts(const nlohmann::ordered_json& json);

}  // namespace lockstep
