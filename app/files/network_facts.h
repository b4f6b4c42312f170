// The data that a network was trained on, as far as using it needs to know: kept in plans and in files of
// weights.
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
  bool bytes = false;                // of uint8 in the data: lockstep's models get floats of them
  std::vector<std::string> classes;  // their names
  int64_t image_size = 0;            // of image files: shorter side and centre crop; 0: as they are

  // A byte becomes (byte / 255 - mean) / deviation: one for each channel, or one for all. Empty: byte / 255.
  std::vector<double> mean = {}, deviation = {};

  bool operator==(const NetworkFacts&) const = default;
};

// {"input": "images", "row_shape": [1, 28, 28], "bytes": true, "classes": ["0", ...], "image_size": 0,
//  "mean": [], "deviation": []}
nlohmann::ordered_json to_json(const NetworkFacts& facts);

// The inverse; nothing for anything else, such as null. The last three keys may be missing, as in files of
// earlier versions.
std::optional<NetworkFacts> read_facts(const nlohmann::ordered_json& json);

}  // namespace lockstep
