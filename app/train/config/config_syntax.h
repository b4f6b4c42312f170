// The text of configuration files: lines of `key = value` in TOML's way. A value is a word or stands in
// quotes, in which every character counts as it is; # begins a comment. There are no lists, and no sections
// but one. A byte order mark may come first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ConfigSetting {
  std::string key;    // the name of a flag: letters, digits, '-' and '_'
  std::string value;  // not empty
  int64_t line = 0;   // from 1; 0: of no file that a user could open
};

// "'run.toml', line 3", for messages; without a line, "'run.toml'".
std::string config_place(const std::string& path, int64_t line);

// Returns the settings in the text's order. section: the only one that may be named, "train" for [train].
// path: for messages. Throws UsageError for the first line that is no setting, and for a key that comes
// twice.
std::vector<ConfigSetting> parse_config(const std::string& text, const std::string& path,
                                        std::string_view section);

// Returns the line that parse_config() reads as this setting. Throws UsageError for a value that no quotes
// can hold.
std::string config_line(const std::string& key, const std::string& value);

}  // namespace lockstep
