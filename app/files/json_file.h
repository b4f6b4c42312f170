// Reads JSON from files of users, with limits on size and nesting. Writes JSON.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include <lockstep/app/files/json.h>

namespace lockstep {

inline constexpr int64_t kMostJsonBytes = int64_t{256} << 20;
inline constexpr int kMostJsonDepth = 64;  // of lists and objects; lockstep's own files need eight

// "not JSON at line 1, column 5", "JSON that is nested more than 64 deep".
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Returns the file's text. Throws DataError with this hint if the file does not exist, is not a regular file
// (a folder, a device, a pipe), has more than kMostJsonBytes, or cannot be read.
std::string read_json_file(const std::string& path, const std::string& hint);

// How much a text may hold. Numbers take 32 bytes each, the others about 100; finding a key takes longer with
// each one.
struct JsonLimits {
  size_t numbers = SIZE_MAX;
  size_t others = SIZE_MAX;  // keys, strings, lists and objects
};

// Throws JsonError.
Json parse_json(const std::string& text, const JsonLimits& limits = {});

// Returns the value as JSON that ends with a newline: on one line, or on many that are indented. All JSON
// that the program writes comes from here: bytes that are not UTF-8 (a path, a host's name or an environment
// may hold any) are replaced by U+FFFD, since the library would throw at the end of the work.
std::string json_line(const Json& value);
std::string json_text(const Json& value);

}  // namespace lockstep
