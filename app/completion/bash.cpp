// The completion for bash: three tables as shell functions, and one function that walks the command line.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/completion/completion.h>

namespace lockstep {
namespace {

// A table's cases, each with the names that lead to it. Equal values share a case.
class Cases {
 public:
  void add(const std::string& name, const std::string& value) {
    for (auto& [known, names] : cases_) {
      if (known == value) return names.push_back(name);
    }
    cases_.push_back({value, {name}});
  }

  // A function that sets REPLY for the name "$1", to nothing for others.
  std::string function(std::string_view function_name) const {
    auto text = fmt::format("{}() {{\n  REPLY=\n  case $1 in\n", function_name);
    for (const auto& [value, names] : cases_) {
      text += fmt::format("    '{}') REPLY='{}' ;;\n", fmt::join(names, "' | '"), value);
    }
    return text + "  esac\n}\n\n";
  }

 private:
  std::vector<std::pair<std::string, std::vector<std::string>>> cases_;
};

// Returns what may stand for a value: words, and @files or @folders. "@" alone: a value that cannot be
// guessed.
std::string value_words(std::vector<std::string> words, bool file, bool folder) {
  if (file) words.emplace_back("@files");
  if (folder) words.emplace_back("@folders");
  return words.empty() ? "@" : fmt::format("{}", fmt::join(words, " "));
}

std::string bash_tables(const CommandOutline& program) {
  Cases subcommands, flags, flag_values, arguments;
  for (const auto* command : all_commands(program)) {
    std::vector<std::string> below, names;
    for (const auto& subcommand : command->subcommands) below.push_back(subcommand.name);
    for (const auto& flag : command->flags) {
      names.push_back(flag.name);
      if (!flag.short_name.empty()) names.push_back(flag.short_name);
      if (flag.value.empty()) continue;
      const auto value = value_words(flag.words, flag.takes_file, flag.takes_folder);
      flag_values.add(command->full_name + " " + flag.name, value);
      if (!flag.short_name.empty()) flag_values.add(command->full_name + " " + flag.short_name, value);
    }
    if (!below.empty()) subcommands.add(command->full_name, fmt::format("{}", fmt::join(below, " ")));
    flags.add(command->full_name, fmt::format("{}", fmt::join(names, " ")));
    if (command->arguments.empty()) continue;
    const auto& first = command->arguments.front();
    arguments.add(command->full_name, value_words(first.words, first.takes_file, first.takes_folder));
  }
  return "# Subcommands of a command.\n" + subcommands.function("_lockstep_subcommands") +
         "# Flags of a command.\n" + flags.function("_lockstep_flags") +
         "# Values of 'COMMAND FLAG'. @: others than words. Nothing: the flag takes no value.\n" +
         flag_values.function("_lockstep_values") + "# Values without a flag.\n" +
         arguments.function("_lockstep_arguments");
}

constexpr std::string_view kHead =
    "# Completion of lockstep for bash, made by `lockstep completion bash`.\n"
    "# shellcheck shell=bash\n\n";

// COMP_WORDS has "=" as a word of its own: --flag = value.
constexpr std::string_view kWalk =
    R"(# Offers the words and files that begin with "$1"; the rest are what _lockstep_values gives.
_lockstep_offer() {
  local begun=$1 word
  shift
  for word in "$@"; do
    case $word in
      @) ;;
      @files | @folders)
        compopt -o filenames 2>/dev/null
        if [[ $word == @files ]]; then
          mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$begun")
        else
          mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "$begun")
        fi
        ;;
      "$begun"*) COMPREPLY+=("$word") ;;
    esac
  done
}

_lockstep() {
  local REPLY words word flag='' command=lockstep help='' launched='' i
  local current=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ $word == = ]]; then
      continue
    elif [[ -n $flag && $word != --* ]]; then
      flag=''
    elif [[ $word == -- && $command == 'lockstep launch' ]]; then
      command=lockstep flag='' launched=1
    elif [[ $word == -* ]]; then
      flag=''
      _lockstep_values "$command $word"
      [[ -n $REPLY ]] && flag=$word
    elif [[ $word == help && $command == lockstep ]]; then
      help=1
    else
      _lockstep_subcommands "$command"
      if [[ " $REPLY " == *" $word "* ]]; then
        command+=" $word"
      elif [[ -n $launched && $command == lockstep ]]; then # another program, whose words are unknown
        _lockstep_offer "$current" @files
        return
      fi
    fi
  done
  [[ $current == = ]] && current=''

  if [[ -n $flag && $current != -* ]]; then
    _lockstep_values "$command $flag"
  elif [[ $current == -* && -z $help ]]; then
    _lockstep_flags "$command"
  else
    _lockstep_subcommands "$command"
    [[ -z $REPLY && -z $help ]] && _lockstep_arguments "$command"
    [[ -z $REPLY && -z $help ]] && _lockstep_flags "$command"
    [[ -n $launched && $current == */* ]] && REPLY=@files
  fi
  read -ra words <<<"$REPLY"
  _lockstep_offer "$current" "${words[@]}"
}

complete -F _lockstep lockstep
)";

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  return std::string(kHead) + bash_tables(program) + std::string(kWalk);
}

}  // namespace lockstep
