#include <lockstep/app/files/json_file.h>

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include <lockstep/app/cli/suggest.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Why this path cannot be read; empty if it is a regular file. A device may have no end, and reading a pipe
// may wait for ever.
std::string why_no_file(const std::string& path) {
  std::error_code error;
  const auto type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) return "there is no such file";
  if (type == fs::file_type::directory) return "it is a folder";
  if (type == fs::file_type::none) return error.message();
  return type == fs::file_type::regular ? "" : "it is not a regular file";
}

// "[json.exception.parse_error.101] parse error at line 1, column 5: syntax error while ..."
std::string place_or_reason(const std::string& words) {
  if (const auto at = words.find("at line"); at != std::string::npos) {
    return " " + words.substr(at, words.find(':', at) - at);
  }
  const auto reason = words.find("] ");
  return ": " + (reason == std::string::npos ? words : words.substr(reason + 2));
}

}  // namespace

std::string read_json_file(const std::string& path, const std::string& hint) {
  const auto refuse = [&](const std::string& why) {
    throw DataError(fmt::format("cannot read {}: {}", in_quotes(path), why), hint);
  };
  if (const auto why = why_no_file(path); !why.empty()) refuse(why);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (std::array<char, 1 << 16> part; file;) {
    file.read(part.data(), part.size());
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(text.size()) > kMostJsonBytes) {
      refuse(fmt::format("it has more than {} MB", kMostJsonBytes >> 20));
    }
  }
  if (!file.is_open() || file.bad()) refuse(std::strerror(errno));
  return text;
}

nlohmann::ordered_json parse_json(const std::string& text, const JsonLimits& limits) {
  using Event = Json::parse_event_t;
  size_t numbers = 0, others = 0;
  // The library sets no limit, and copies nested values by recursion.
  const auto bounded = [&](int depth, Event event, Json& value) {
    const bool begins = event == Event::object_start || event == Event::array_start;
    const bool single = event == Event::value;
    numbers += single && !value.is_string();
    others += begins || event == Event::key || (single && value.is_string());
    if (numbers > limits.numbers || others > limits.others) throw JsonError("JSON that is too long");
    if (!begins || depth < kMostJsonDepth) return true;
    throw JsonError(fmt::format("JSON that is nested more than {} deep", kMostJsonDepth));
  };
  try {
    return Json::parse(text, bounded);
  } catch (const Json::exception& error) {
    throw JsonError("not JSON" + place_or_reason(error.what()));
  }
}

std::string json_line(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
