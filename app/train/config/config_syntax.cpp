#include <lockstep/app/train/config/config_syntax.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <system_error>

#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr std::string_view kBlanks = " \t\r";
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // Windows' editors begin UTF-8 with it
constexpr char kUnused = '\1';                               // stands in no configuration

// Versions of CLI11 differ in the comments, lists and escapes that they find within quotes. With these
// settings, and for lines that well_formed() lets pass, all read the same.
class Reader : public CLI::ConfigTOML {
 public:
  Reader() { comment(kUnused)->arrayBounds(kUnused, kUnused)->arrayDelimiter(kUnused); }
};

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string_view without_comment(std::string_view line) {
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote == 0 && c == '#') return line.substr(0, i);
    if (quote == 0 && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == quote) {
      quote = 0;
    }
  }
  return line;
}

bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == '\x7f'; }

bool is_key(std::string_view text) {
  const auto fits = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  return !text.empty() && std::all_of(text.begin(), text.end(), fits);
}

// CLI11's notations for bytes and lists, which some versions read in quotes, too.
bool is_notation(std::string_view value) { return value.starts_with("B\"(") || value.starts_with('['); }

struct Problem {
  std::string what;  // empty: none
  std::string hint = {};
};

Problem problem_of_quoted(std::string_view value) {
  const char quote = value.front();
  if (value.size() < 2 || value.find(quote, 1) + 1 != value.size()) {
    return {"a value must end with the quote that it begins with, and hold no other",
            quote == '"' ? "use single quotes around double ones" : "use double quotes around single ones"};
  }
  const auto inner = value.substr(1, value.size() - 2);
  if (quote == '"' && inner.find('\\') != std::string_view::npos) {
    return {"a value in double quotes has a backslash", "use single quotes: every character counts as it is"};
  }
  if (is_notation(inner)) return {"a value may not begin with [ or B\"("};
  return {};
}

// Returns the problem of a line, given without its comment.
Problem problem_of(std::string_view line) {
  const auto equals = line.find('=');
  const auto key = trimmed(line.substr(0, equals));
  if (equals == std::string_view::npos) {
    return {fmt::format("{} is not 'key = value'", in_quotes(key)),
            "write a value, such as 'batch-size = 512'; a flag without one is 'overwrite = true'"};
  }
  if (key.find('.') != std::string_view::npos) {
    return {fmt::format("the key {} has a dot, and there are no keys within keys", in_quotes(key)),
            "write the name of a flag: 'batch-size = 512'"};
  }
  if (!is_key(key)) {
    return {fmt::format("{} is not a key", in_quotes(key)), "write the name of a flag: 'batch-size = 512'"};
  }
  const auto value = trimmed(line.substr(equals + 1));
  if (value.empty() || value == "\"\"" || value == "''") {
    return {fmt::format("{} needs a value after '='", key), "leave the line out for the default"};
  }
  if (value.front() == '"' || value.front() == '\'') return problem_of_quoted(value);
  if (value.front() == '[' || value.front() == '{') {
    return {fmt::format("{} takes one value, not a list", key),
            "write several values with commas: 'cpu,cpu'"};
  }
  if (value.find_first_of(" \t\r\"'`\\=") != std::string_view::npos) {
    return {fmt::format("the value {} needs quotes around it", in_quotes(value))};
  }
  return {};
}

// Returns true if the line opens the section. Throws UsageError for another one.
bool opens(std::string_view line, std::string_view section, const std::string& place) {
  if (!line.starts_with('[')) return false;
  const bool closed = line.ends_with(']');
  if (closed && trimmed(line.substr(1, line.size() - 2)) == section) return true;
  throw UsageError(fmt::format("{}: there is no section {}", place, in_quotes(line)),
                   fmt::format("put all keys below [{}], or below no section", section));
}

}  // namespace

std::string config_place(const std::string& path, int64_t line) {
  return line > 0 ? fmt::format("{}, line {}", in_quotes(path), line) : in_quotes(path);
}

std::vector<ConfigSetting> parse_config(const std::string& text, const std::string& path,
                                        std::string_view section) {
  const auto stays = [](char c) { return !is_control(c) || c == '\n' || c == '\r' || c == '\t'; };
  if (!std::all_of(text.begin(), text.end(), stays)) {
    throw UsageError(fmt::format("{} is not a text", in_quotes(path)),
                     "a configuration has lines such as 'batch-size = 512'");
  }
  const Reader reader;
  std::vector<ConfigSetting> settings;
  std::map<std::string, int64_t> lines;
  std::istringstream in(text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text);
  int64_t number = 0;
  for (std::string whole; std::getline(in, whole);) {
    const auto place = config_place(path, ++number);
    const std::string line(trimmed(without_comment(whole)));
    if (line.empty() || opens(line, section, place)) continue;
    if (const auto [what, hint] = problem_of(line); !what.empty()) {
      throw UsageError(fmt::format("{}: {}", place, what), hint);
    }
    // Line by line: CLI11 joins the values of a key that comes twice.
    std::istringstream one(line);
    const auto items = reader.from_config(one);
    ConfigSetting setting{.key = items.at(0).name, .value = items.at(0).inputs.at(0), .line = number};
    const auto [first, is_new] = lines.emplace(setting.key, number);
    if (!is_new) {
      throw UsageError(
          fmt::format("{}: '{}' is given again, after line {}", place, setting.key, first->second),
          "keep one of them");
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

std::string config_line(const std::string& key, const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  const bool numeric = error == std::errc() && end == value.data() + value.size() &&
                       value.find_first_not_of("0123456789.-+e") == std::string::npos;
  if (numeric || value == "true" || value == "false") return fmt::format("{} = {}\n", key, value);

  const bool text = std::none_of(value.begin(), value.end(), is_control);
  if (!value.empty() && text && !is_notation(value)) {
    if (value.find_first_of("\"\\") == std::string::npos) return fmt::format("{} = \"{}\"\n", key, value);
    if (value.find('\'') == std::string::npos) return fmt::format("{} = '{}'\n", key, value);
  }
  throw UsageError(
      fmt::format("the value {} of '{}' cannot stand in a configuration", in_quotes(value), key),
      "use a name without control characters, without [ at its beginning, and without single quotes "
      "beside double ones or backslashes");
}

}  // namespace lockstep
