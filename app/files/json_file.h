// JSON in files that somebody hands in: how much is read of one, and how deep it may be nested, is bounded.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace lockstep {

inline constexpr int64_t kMostJsonBytes = int64_t{256} << 20;
inline constexpr int kMostJsonDepth =
    64;  // lists and objects within each other; ours have no more than eight

// Why a text was not taken: "no JSON at line 1, column 5", "JSON that is nested more than 64 deep".
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Throws DataError, with this hint: there is no such file, it is none of the regular ones (a folder, a
// device, a pipe), it has more than kMostJsonBytes, or it cannot be read.
std::string read_json_file(const std::string& path, const std::string& hint);

// Throws JsonError.
nlohmann::ordered_json parse_json(const std::string& text);

}  // namespace lockstep
