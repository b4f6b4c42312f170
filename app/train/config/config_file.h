// Flags from a configuration file: --config FILE.
#pragma once

#include <optional>
#include <span>
#include <string>

#include <lockstep/app/train/config/config_syntax.h>

namespace CLI {
class App;
}

namespace lockstep {

// --config
void add_config_flag(CLI::App& command);

// The file that the command's --config names, if it was given.
std::optional<std::string> config_path(const CLI::App& command);

// Sets the flags of the command that were not given. path: of the file that holds the settings. Throws
// UsageError for a key that is no flag of the command or cannot stand in a file, and for a value that its
// flag refuses.
void apply_settings(std::span<const ConfigSetting> settings, const std::string& path, CLI::App& command);

// Sets the flags of the commands that are run, below `app`, from the files that their --config names. Call it
// when command line and environment are read: what they have set stays. Throws UsageError for a file that
// cannot be read, and as apply_settings() does.
void apply_config_files(CLI::App& app);

}  // namespace lockstep
