#include <lockstep/app/train/config/config_file.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <string_view>
#include <vector>

#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/files/text_file.h>
#include <lockstep/support/error.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr const char* kConfig = "--config";

// The flags that say what one start is to do, and where its process stands: not what is trained.
constexpr std::string_view kInvocationOnly[] = {"help", "color",   "config",        "print-config",
                                                "json", "dry-run", "resume-anyway", "rank"};

bool is_invocation_only(std::string_view key) {
  return std::find(std::begin(kInvocationOnly), std::end(kInvocationOnly), key) != std::end(kInvocationOnly);
}

std::vector<std::string> keys_of(CLI::App& command) {
  std::vector<std::string> keys;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) {
      if (!is_invocation_only(name)) keys.push_back(name);
    }
  }
  return keys;
}

std::string see_help(const CLI::App& command) {
  return fmt::format("see 'lockstep {} --help'", command.get_name());
}

CLI::Option& option_of(const ConfigSetting& setting, CLI::App& command, const std::string& place) {
  const auto& key = setting.key;
  if (is_invocation_only(key)) {
    throw UsageError(fmt::format("{}: '{}' cannot stand in a configuration file", place, key),
                     fmt::format("give --{} on the command line", key));
  }
  const auto keys = keys_of(command);
  if (std::find(keys.begin(), keys.end(), key) != keys.end()) return *command.get_option("--" + key);
  const auto near = nearest(key, keys);
  const auto hint = near ? fmt::format("did you mean '{}'? {}", *near, see_help(command)) : see_help(command);
  throw UsageError(fmt::format("{}: unknown key {}", place, in_quotes(key)), hint);
}

void set(CLI::Option& option, const std::string& value, const CLI::App& command, const std::string& place) {
  option.envname("");  // it is empty, or not there: errors must not name it
  try {
    option.add_result(value);
    option.run_callback();
  } catch (const CLI::ParseError& error) {
    const auto usage = usage_error(*command.get_parent(), error);
    throw UsageError(fmt::format("{}: {}", place, usage.message()), usage.hint());
  }
}

void apply(const std::string& path, CLI::App& command) {
  const auto text = read_text_file(path, kMostConfigBytes, [&](const std::string& why) {
    throw UsageError(fmt::format("cannot read the configuration {}: {}", in_quotes(path), why),
                     "--config takes a file of lines such as 'batch-size = 512'");
  });
  apply_settings(parse_config(text, path, command.get_name()), path, command);
}

}  // namespace

void add_config_flag(CLI::App& command) {
  command
      .add_option(kConfig,
                  "Read flags from this file: lines such as 'batch-size = 512'. The command line and "
                  "LOCKSTEP_FLAG_NAME take precedence over it")
      ->type_name("FILE");
}

std::optional<std::string> config_path(const CLI::App& command) {
  const auto* config = command.get_option_no_throw(kConfig);
  return config && config->count() > 0 ? std::optional(config->results().front()) : std::nullopt;
}

void apply_settings(std::span<const ConfigSetting> settings, const std::string& path, CLI::App& command) {
  for (const auto& setting : settings) {
    const auto place = config_place(path, setting.line);
    auto& option = option_of(setting, command, place);
    if (option.count() == 0) set(option, setting.value, command, place);
  }
}

void apply_config_files(CLI::App& app) {
  for (auto* command : app.get_subcommands()) {
    if (const auto path = config_path(*command)) apply(*path, *command);
    apply_config_files(*command);
  }
}

}  // namespace lockstep
