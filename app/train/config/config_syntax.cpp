#include <lockstep/app/train/config/config_syntax.h>

#include <fmt/format.h>

// Only here, since it takes long to compile. With NDEBUG its parser would let the compiler assume that "[" is
// followed by a key, which a wrong text breaks; without, it goes on to report the error.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <algorithm>
#include <cctype>
#include <cmath>
#include <map>
#include <optional>

#include <lockstep/support/error.h>
#include <lockstep/support/parse_number.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// number: from 1
std::string_view line_of(std::string_view text, int64_t number) {
  for (; number > 1; --number) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

std::optional<double> number_of(std::string_view text) {
  const auto number = parse_number<double>(text);
  return number && std::isfinite(*number) ? number : std::nullopt;
}

// The text that a flag takes; empty for values that no flag takes.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* is_on = node.as_boolean()) return is_on->get() ? "true" : "false";
  return std::nullopt;
}

bool is_section(const toml::node& node) {
  const auto* table = node.as_table();
  const auto* list = node.as_array();
  return (table && !table->is_inline()) || (list && !list->empty() && list->is_array_of_tables());
}

struct Entry {
  std::string key;
  const toml::node* node;
  int64_t line;
};

// In the text's order: those of the section beside those that stand above it.
std::vector<Entry> entries_of(const toml::table& all, std::string_view section) {
  std::vector<Entry> entries;
  for (const auto& [key, node] : all) {
    const auto* table = is_section(node) ? node.as_table() : nullptr;
    if (table && key.str() == section) {
      for (auto& entry : entries_of(*table, "")) entries.push_back(std::move(entry));
    } else {
      entries.push_back({std::string(key.str()), &node, key.source().begin.line});
    }
  }
  std::ranges::stable_sort(entries, {}, &Entry::line);
  return entries;
}

// Returns true if TOML reads the line as this value alone.
bool holds(const std::string& line, const std::string& key, const std::string& value) {
  if (static_cast<int64_t>(line.size()) >= kMostConfigBytes) return false;
  const auto parsed = toml::parse(std::string_view(line));
  if (!parsed || parsed.table().size() != 1) return false;
  const auto* node = parsed.table().get(key);
  return node && text_of(*node) == value;
}

// A string in double quotes.
std::string escaped(const std::string& value) {
  std::string text;
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') text += '\\';
    text += byte < ' ' || byte == 0x7f ? fmt::format("\\u{:04x}", byte) : std::string(1, c);
  }
  return fmt::format("\"{}\"", text);
}

// The line that TOML reads as this value; empty if there is none.
std::optional<std::string> written(const std::string& key, const std::string& value) {
  const bool is_bare = number_of(value) || value == "true" || value == "false";
  const bool has_signs = value.find_first_of("\"\\") != std::string::npos;
  std::vector<std::string> forms;
  if (is_bare) forms.push_back(value);
  if (has_signs) forms.push_back(fmt::format("'{}'", value));
  forms.push_back(escaped(value));
  for (const auto& form : forms) {
    const auto line = fmt::format("{} = {}", key, form);
    if (holds(line, key, value)) return line;
  }
  return std::nullopt;
}

bool is_key(std::string_view text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '-' || c == '_'; };
  return !text.empty() && std::ranges::all_of(text, fits);
}

// How TOML writes a line of an older file that has a word without quotes, or a number such as .5; empty for
// other lines.
std::optional<std::string> in_toml(std::string_view line) {
  line = line.substr(0, line.find('#'));
  const auto equals = line.find('=');
  if (equals == line.npos) return std::nullopt;
  const auto key = trimmed(line.substr(0, equals)), value = trimmed(line.substr(equals + 1));
  if (!is_key(key) || value.empty() || value.find_first_of("\"'[]{}=") != value.npos) return std::nullopt;
  const auto number = number_of(value);
  return written(std::string(key), number ? fmt::format("{}", *number) : std::string(value));
}

std::string hint_for(std::string_view line) {
  if (toml::parse(line)) return "give it once";  // alone it is right
  if (is_key(trimmed(line))) return fmt::format("a flag without a value is '{} = true'", trimmed(line));
  if (const auto right = in_toml(line)) return "write " + *right;
  return "lines are such as 'batch-size = 512'; text stands in quotes: 'devices = \"cpux2\"'";
}

[[noreturn]] void refuse(const toml::parse_error& error, const std::string& text, const std::string& path) {
  const int64_t line = error.source().begin.line;
  auto what = std::string(error.description());
  if (!what.empty()) what.front() = static_cast<char>(std::tolower(what.front()));
  throw UsageError(fmt::format("{}: {}", config_place(path, line), what), hint_for(line_of(text, line)));
}

// Throws UsageError unless the entry is a setting.
ConfigSetting setting_of(const Entry& entry, const std::string& path, std::string_view section) {
  const auto place = config_place(path, entry.line);
  if (is_section(*entry.node)) {
    throw UsageError(fmt::format("{}: there is no section {}", place, in_quotes(entry.key)),
                     fmt::format("put all keys below [{}], or below no section", section));
  }
  auto value = text_of(*entry.node);
  if (!value) {
    throw UsageError(fmt::format("{}: {} takes one number, true, false or text", place, in_quotes(entry.key)),
                     "write several values with commas in one text: \"cpu,cpu\"");
  }
  if (value->empty()) {
    throw UsageError(fmt::format("{}: {} has an empty value", place, in_quotes(entry.key)),
                     "leave the line out for the default");
  }
  return {.key = entry.key, .value = std::move(*value), .line = entry.line};
}

}  // namespace

std::string config_place(const std::string& path, int64_t line) {
  return line > 0 ? fmt::format("{}, line {}", in_quotes(path), line) : in_quotes(path);
}

std::vector<ConfigSetting> parse_config(const std::string& text, const std::string& path,
                                        std::string_view section) {
  if (static_cast<int64_t>(text.size()) > kMostConfigBytes) {
    throw UsageError(fmt::format("{} has more than {} KB", in_quotes(path), kMostConfigBytes >> 10),
                     "a configuration has lines such as 'batch-size = 512'");
  }
  const auto parsed = toml::parse(std::string_view(text));
  if (!parsed) refuse(parsed.error(), text, path);
  std::vector<ConfigSetting> settings;
  std::map<std::string, int64_t> lines;
  for (const auto& entry : entries_of(parsed.table(), section)) {
    settings.push_back(setting_of(entry, path, section));
    const auto [first, is_new] = lines.emplace(entry.key, entry.line);
    if (is_new) continue;
    throw UsageError(fmt::format("{}: '{}' is given again, after line {}", config_place(path, entry.line),
                                 entry.key, first->second),
                     "keep one of them");
  }
  return settings;
}

std::optional<std::string> find_config_line(const std::string& key, const std::string& value) {
  const auto line = value.empty() ? std::nullopt : written(key, value);
  return line ? std::optional(*line + "\n") : std::nullopt;
}

std::string config_line(const std::string& key, const std::string& value) {
  if (auto line = find_config_line(key, value)) return *std::move(line);
  throw UsageError(fmt::format("the value {} of '{}' cannot stand in a configuration", in_quotes(value), key),
                   "use a shorter name in UTF-8");
}

}  // namespace lockstep
