#include <lockstep/app/cli/help/help.h>

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <lockstep/app/cli/help/outline.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

constexpr size_t kWidth = 80;      // columns of the page
constexpr size_t kMaxColumn = 26;  // a longer left side has its text on the next line

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

Row flag_row(const FlagOutline& flag) {
  auto left = flag.short_name.empty() ? std::string("    ") : flag.short_name + ", ";
  left += flag.name;
  if (!flag.value.empty()) left += " " + flag.value;
  return {left, flag.text};
}

// "FILE..."
std::string argument_name(const ArgumentOutline& argument) {
  return argument.name + (argument.repeated ? "..." : "");
}

// A table per group, in the order of their first flags. The flags without a group come last.
std::string flag_tables(const CommandOutline& command) {
  std::vector<std::pair<std::string, std::vector<Row>>> groups;
  std::vector<Row> others;
  for (const auto& flag : command.flags) {
    if (flag.group.empty()) {
      others.push_back(flag_row(flag));
      continue;
    }
    auto known = std::find_if(groups.begin(), groups.end(),
                              [&](const auto& group) { return group.first == flag.group; });
    if (known == groups.end()) known = groups.insert(known, {flag.group, {}});
    known->second.push_back(flag_row(flag));
  }
  std::string out;
  for (const auto& [name, rows] : groups) out += table(name, rows);
  return out + table(groups.empty() ? "Flags" : "Other flags", others);
}

}  // namespace

std::string usage_line(const CommandOutline& command) {
  auto line = command.full_name + (command.subcommands.empty() ? "" : " SUBCOMMAND");
  for (const auto& argument : command.arguments) {
    const auto name = argument_name(argument);
    line += argument.required ? " " + name : fmt::format(" [{}]", name);
  }
  return line + " [FLAGS]" + (command.launches ? " -- COMMAND..." : "");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const {
  const auto command = outline_of(*app, name);
  auto out = wrapped(command.text, 0, kWidth) + "\n\nUsage: " + usage_line(command) + "\n";
  std::vector<Row> arguments, subcommands;
  for (const auto& argument : command.arguments)
    arguments.push_back({argument_name(argument), argument.text});
  for (const auto& subcommand : command.subcommands)
    subcommands.push_back({subcommand.name, subcommand.text});
  out += table("Arguments", arguments) + table("Subcommands", subcommands);
  out += flag_tables(command);

  if (!command.footer.empty()) out += "\n" + wrapped(command.footer, 0, kWidth) + "\n";
  return out;
}

}  // namespace lockstep
