// The text of configuration files: TOML whose values are numbers, true, false and strings. There are no
// lists, and no sections but one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Far more than a configuration has. With more a text could nest keys so deeply that no stack holds them.
inline constexpr int64_t kMostConfigBytes = int64_t{1} << 14;

struct ConfigSetting {
  std::string key;    // the name of a flag
  std::string value;  // not empty; a number with all its bits
  int64_t line = 0;   // from 1; 0: of no file that a user could open
};

// "'run.toml', line 3", for messages; without a line, "'run.toml'".
std::string config_place(const std::string& path, int64_t line);

// Returns the settings in the text's order. section: the only one that may be named, "train" for [train].
// path: for messages. Throws UsageError for the first line that is no setting, and for a key that comes
// twice. Older files could have words without quotes, and numbers such as .5, which TOML does not know: then
// the error's hint has the line to write.
std::vector<ConfigSetting> parse_config(const std::string& text, const std::string& path,
                                        std::string_view section);

// Returns the line that parse_config() reads as this setting. Throws UsageError for a value that TOML cannot
// hold (an empty one, and one that is no UTF-8) and for one that is too long.
std::string config_line(const std::string& key, const std::string& value);

// The same; nullopt for such a value.
std::optional<std::string> find_config_line(const std::string& key, const std::string& value);

}  // namespace lockstep
