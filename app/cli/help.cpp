#include <lockstep/app/cli/help.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/app/cli/launched_words.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

constexpr size_t kWidth = 80;                // columns of the page
constexpr size_t kMaxColumn = 26;            // a longer left side has its text on the next line
constexpr const char* kNoGroup = "Options";  // CLI11's name of the group of all other flags

struct Row {
  std::string left;
  std::string text;
};

std::string table(const std::string& title, const std::vector<Row>& rows) {
  if (rows.empty()) return "";
  size_t widest = 0;
  for (const auto& row : rows) {
    if (row.left.size() <= kMaxColumn) widest = std::max(widest, row.left.size());
  }
  const auto indent = widest + 4;
  auto out = fmt::format("\n{}:\n", title);
  for (const auto& row : rows) {
    const auto left = "  " + row.left;
    const bool fits = left.size() + 2 <= indent;
    out += left + (fits ? std::string(indent - left.size(), ' ') : "\n" + std::string(indent, ' '));
    out += wrapped(row.text, indent, kWidth) + "\n";
  }
  return out;
}

// "N", "auto|always|never", "FILE"; empty for a flag without a value. CLI11 gives the type's name, a colon
// and the validator's description.
std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const auto type = option.get_type_name();
  if (type == "INT" || type == "UINT") return "N";
  if (type == "FLOAT") return "X";
  return type.substr(type.find(':') + 1);  // without a colon: the whole name
}

Row flag_row(const CLI::Option& option) {
  std::string left = option.get_snames().empty() ? "    " : fmt::format("-{}, ", option.get_snames().front());
  left += "--" + option.get_lnames().front();
  if (const auto value = value_name(option); !value.empty()) left += " " + value;

  auto text = option.get_description();
  const bool has_default = option.get_items_expected_max() > 0 && !option.get_default_str().empty();
  if (has_default) text += fmt::format(" (default {})", option.get_default_str());
  return {left, text};
}

// The values without a flag.
std::vector<const CLI::Option*> arguments_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

// "FILE..."
std::string argument_name(const CLI::Option& option) {
  return option.get_name() + (option.get_items_expected_max() > 1 ? "..." : "");
}

// "Usage: lockstep help [SUBCOMMAND...] [FLAGS]"
std::string usage_line(const CLI::App& app, const std::string& command) {
  const bool has_subcommands = !app.get_subcommands([](const CLI::App*) { return true; }).empty();
  auto line = fmt::format("Usage: {}{}", command, has_subcommands ? " SUBCOMMAND" : "");
  for (const auto* argument : arguments_of(app)) {
    const auto name = argument_name(*argument);
    line += argument->get_required() ? " " + name : fmt::format(" [{}]", name);
  }
  return fmt::format("{} [FLAGS]{}\n", line, app.get_name() == kLaunch ? " -- COMMAND..." : "");
}

std::vector<const CLI::Option*> flags_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_lnames().empty(); });
}

// The command's own flags, then --help, then the flags of the program.
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

// A table per group, in the order of their first flags. The flags without a group come last.
std::string flag_tables(const CLI::App& app) {
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  std::vector<Row> others;
  for (const auto* flag : all_flags_of(app)) {
    if (flag->get_group() == kNoGroup) {
      others.push_back(flag_row(*flag));
      continue;
    }
    auto known = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == flag->get_group(); });
    if (known == groups.end()) known = groups.insert(known, {flag->get_group(), {}});
    known->second.push_back(flag_row(*flag));
  }
  std::string out;
  for (const auto& [name, rows] : groups) out += table(name, rows);
  return out + table(groups.empty() ? "Flags" : "Other flags", others);
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string command, CLI::AppFormatMode) const {
  auto out = wrapped(app->get_description(), 0, kWidth) + "\n\n" + usage_line(*app, command);
  std::vector<Row> arguments, subcommands;
  for (const auto* argument : arguments_of(*app)) {
    arguments.push_back({argument_name(*argument), argument->get_description()});
  }
  for (const auto* subcommand : app->get_subcommands([](const CLI::App*) { return true; })) {
    subcommands.push_back({subcommand->get_name(), subcommand->get_description()});
  }
  out += table("Arguments", arguments) + table("Subcommands", subcommands);
  out += flag_tables(*app);

  if (!app->get_footer().empty()) out += "\n" + wrapped(app->get_footer(), 0, kWidth) + "\n";
  return out;
}

}  // namespace lockstep
