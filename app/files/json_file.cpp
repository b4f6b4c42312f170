#include <lockstep/app/files/json_file.h>

#include <fmt/format.h>

#include <lockstep/app/files/text_file.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

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
  return read_text_file(path, kMostJsonBytes, refuse);
}

Json parse_json(const std::string& text, const JsonLimits& limits) {
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

std::string json_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string json_text(const Json& value) {
  return value.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
