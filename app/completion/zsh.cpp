// The completion for zsh: a function per command, in the language of its _arguments.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include <lockstep/app/completion/completion.h>

namespace lockstep {
namespace {

// Within single quotes, as a part of a specification of _arguments or _describe.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out;
}

std::string zsh_function(const CommandOutline& command) {
  std::string name = "_";
  for (const char c : command.full_name) name += c == ' ' || c == '-' ? '_' : c;
  return name;
}

// ":NAME:ACTION", where the action offers words, files or folders.
std::string zsh_value(const std::string& name, const std::vector<std::string>& words, bool file,
                      bool folder) {
  const auto* paths = file ? "_files" : "_files -/";
  const auto list = fmt::format("({})", fmt::join(words, " "));
  std::string action = " ";  // nothing can be offered
  if (!words.empty() && (file || folder)) {
    action = fmt::format("{{_alternative \"words\\:value\\:{}\" \"paths\\:path\\:{}\"}}", list, paths);
  } else if (!words.empty()) {
    action = list;
  } else if (file || folder) {
    action = paths;
  }
  return fmt::format(":{}:{}", zsh_text(name), action);
}

// Both names of a flag exclude each other; * lets it be given again.
std::string zsh_flag(const FlagOutline& flag) {
  const auto text = fmt::format("[{}]", zsh_text(flag.text));
  std::string value;
  if (!flag.value.empty()) {
    const bool choice = flag.value.find('|') != std::string::npos;
    value =
        zsh_value(choice ? flag.name.substr(2) : flag.value, flag.words, flag.takes_file, flag.takes_folder);
    if (flag.value.front() == '[') value.insert(0, ":");  // may be left out
  }
  const auto* equals = value.empty() ? "" : "=";
  if (flag.short_name.empty()) return fmt::format("    '*{}{}{}{}' \\\n", flag.name, equals, text, value);
  return fmt::format("    '({0} {1})'{{{0},{1}{2}}}'{3}{4}' \\\n", flag.short_name, flag.name, equals, text,
                     value);
}

std::string zsh_argument(const ArgumentOutline& argument) {
  return fmt::format("    '{}{}' \\\n", argument.repeated ? "*" : "",
                     zsh_value(argument.name, argument.words, argument.takes_file, argument.takes_folder));
}

// _arguments leaves the rest of the line in $words, from the subcommand's name on.
std::string subcommand_cases(const CommandOutline& command) {
  std::string described, cases;
  for (const auto& below : command.subcommands) {
    described += fmt::format("        '{}:{}'\n", zsh_text(below.name), zsh_text(below.text));
    cases += fmt::format("        {}) {} ;;\n", below.name, zsh_function(below));
  }
  return fmt::format(
      "  case $state in\n"
      "    subcommand)\n"
      "      local -a subcommands=(\n{}      )\n"
      "      _describe subcommand subcommands\n"
      "      ;;\n"
      "    rest)\n"
      "      case $words[1] in\n{}      esac\n"
      "      ;;\n"
      "  esac\n",
      described, cases);
}

// After `--` the words of another command line of lockstep follow, or a program.
constexpr const char* kLaunched =
    "  local dashes=${words[(i)--]}\n"
    "  if ((dashes < CURRENT)); then\n"
    "    words=(lockstep \"${(@)words[dashes + 1,-1]}\")\n"
    "    ((CURRENT -= dashes - 1))\n"
    "    if [[ $words[2] == */* ]]; then\n"
    "      _files\n"
    "    else\n"
    "      _lockstep\n"
    "    fi\n"
    "    return\n"
    "  fi\n";

// help takes the names of commands.
constexpr const char* kCommandNames =
    "  words[1]=lockstep\n"
    "  _lockstep\n";

bool takes_commands(const CommandOutline& command) {
  return !command.arguments.empty() && command.arguments.front().name == "SUBCOMMAND";
}

std::string zsh_command(const CommandOutline& command) {
  auto text = fmt::format("{}() {{\n", zsh_function(command));
  if (takes_commands(command)) return text + kCommandNames + "}\n\n";
  if (command.launches) text += kLaunched;
  const bool nested = !command.subcommands.empty();
  if (nested) text += "  local context state state_descr line\n  typeset -A opt_args\n";
  text += nested ? "  _arguments -C \\\n" : "  _arguments \\\n";
  for (const auto& flag : command.flags) text += zsh_flag(flag);
  for (const auto& argument : command.arguments) text += zsh_argument(argument);
  if (nested) text += "    '1:subcommand:->subcommand' \\\n    '*::argument:->rest' \\\n";
  text.erase(text.size() - 3, 2);  // the last " \"
  if (nested) text += subcommand_cases(command);
  return text + "}\n\n";
}

}  // namespace

std::string zsh_completion(const CommandOutline& program) {
  std::string text = "#compdef lockstep\n# Made by `lockstep completion zsh`.\n\n";
  for (const auto* command : all_commands(program)) text += zsh_command(*command);
  return text + "_lockstep \"$@\"\n";
}

}  // namespace lockstep
