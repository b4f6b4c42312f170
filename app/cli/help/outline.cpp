#include <lockstep/app/cli/help/outline.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include <lockstep/app/cli/launched_words.h>
#include <lockstep/data/data_folder.h>
#include <lockstep/support/split_text.h>

namespace lockstep {
namespace {

constexpr const char* kNoGroup = "Options";  // CLI11's name of the group of all other flags

// Values that a shell can offer for flags that take many others.
struct UsualWords {
  std::string_view flag;
  std::vector<std::string> words;
};

const std::vector<UsualWords>& usual_words() {
  static const std::vector<UsualWords> words = {{"--devices", {"auto", "cpu", "cpux2", "cuda"}},
                                                {"--split", {"even", "auto"}},
                                                {"--data", known_data_names()},
                                                {"--link", {"nvlink4", "pcie5"}}};
  return words;
}

// "auto", "fp32", "1"; not "N", "[DIR]", "Nepochs": these stand for something.
bool is_word(std::string_view part) {
  return !part.empty() && part.front() != '[' && std::isupper(static_cast<unsigned char>(part.front())) == 0;
}

struct ValueType {
  std::string name;    // for the help
  std::string choice;  // "fp32|bf16", "NAME", "auto|DIR"
};

// CLI11 gives the type's name, a colon, and a validator's description: "TEXT:fp32|bf16", "NAME:lenet|other",
// "TEXT:SIZE". HOST:PORT is one name.
ValueType value_type(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return {};
  const auto text = option.get_type_name();
  const auto colon = std::min(text.find(':'), text.size());
  const auto type = text.substr(0, colon);
  const auto described = colon < text.size() ? text.substr(colon + 1) : "";
  if (type.empty() || type == "TEXT") return {described.empty() ? type : described, described};
  if (type == "INT" || type == "UINT") return {"N", ""};
  if (type == "FLOAT") return {"X", ""};
  return is_word(described) ? ValueType{type, described} : ValueType{text, text};
}

std::vector<std::string> known_words(const ValueType& type) {
  std::vector<std::string> words;
  for (const auto part : split_text(type.choice, '|')) {
    if (is_word(part)) words.emplace_back(part);
  }
  return words;
}

// name: "FILE", "[DIR]", "auto|DIR"
bool stands_for(const std::string& name, std::string_view what) {
  const auto parts = split_text(name, '|');
  return std::any_of(parts.begin(), parts.end(),
                     [&](const auto& part) { return part == what || part == fmt::format("[{}]", what); });
}

FlagOutline flag_outline(const CLI::Option& option) {
  FlagOutline flag;
  flag.name = "--" + option.get_lnames().front();
  if (!option.get_snames().empty()) flag.short_name = "-" + option.get_snames().front();
  const auto type = value_type(option);
  flag.value = type.name;
  flag.text = option.get_description();
  const bool has_default = !flag.value.empty() && !option.get_default_str().empty();
  if (has_default) flag.text += fmt::format(" (default {})", option.get_default_str());
  if (option.get_group() != kNoGroup) flag.group = option.get_group();
  flag.words = known_words(type);
  for (const auto& usual : usual_words()) {
    if (flag.name == usual.flag && !flag.value.empty()) flag.words = usual.words;
  }
  flag.takes_file = stands_for(flag.value, "FILE");
  flag.takes_folder = stands_for(flag.value, "DIR");
  return flag;
}

ArgumentOutline argument_outline(const CLI::Option& option) {
  const auto type = value_type(option);
  return {.name = option.get_name(),
          .text = option.get_description(),
          .required = option.get_required(),
          .repeated = option.get_items_expected_max() > 1,
          .words = known_words(type),
          .takes_file = stands_for(type.name, "FILE") || option.get_name() == "FILE",
          .takes_folder = stands_for(type.name, "DIR")};
}

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_lnames().empty(); });
}

std::vector<const CLI::Option*> all_flags_of(const CLI::App& app) {
  auto flags = flags_of(app);
  std::stable_partition(flags.begin(), flags.end(),
                        [&](const auto* flag) { return flag != app.get_help_ptr(); });
  const auto* root = app.get_parent();
  while (root && root->get_parent()) root = root->get_parent();
  if (!root) return flags;
  for (const auto* flag : flags_of(*root)) {
    if (flag != root->get_help_ptr() && flag != root->get_version_ptr()) flags.push_back(flag);
  }
  return flags;
}

}  // namespace

CommandOutline outline_of(const CLI::App& command, const std::string& full_name) {
  CommandOutline outline{.name = command.get_name(),
                         .full_name = full_name,
                         .text = command.get_description(),
                         .footer = command.get_footer(),
                         .launches = command.get_name() == kLaunch};
  for (const auto* argument :
       command.get_options([](const CLI::Option* option) { return option->get_positional(); })) {
    outline.arguments.push_back(argument_outline(*argument));
  }
  for (const auto* flag : all_flags_of(command)) outline.flags.push_back(flag_outline(*flag));
  for (const auto* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) {
    outline.subcommands.push_back(outline_of(*subcommand, full_name + " " + subcommand->get_name()));
  }
  return outline;
}

std::vector<const CommandOutline*> all_commands(const CommandOutline& command) {
  std::vector<const CommandOutline*> all{&command};
  for (const auto& subcommand : command.subcommands) {
    const auto below = all_commands(subcommand);
    all.insert(all.end(), below.begin(), below.end());
  }
  return all;
}

}  // namespace lockstep
