// The completions and the man page name every command, flag and value of the command line.
#include <CLI/CLI.hpp>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/app/commands/commands.h>
#include <lockstep/app/completion/completion.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/app/train/plan/recipe.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

struct Flag {
  std::string command;  // "lockstep bench step"
  std::string name;     // "--threads"
};

// Straight from CLI11's tree, without the outline that the texts are made from.
void collect(const CLI::App& command, const std::string& name, std::vector<Flag>& flags,
             std::vector<std::string>& commands) {
  commands.push_back(name);
  for (const auto* option : command.get_options()) {
    for (const auto& flag : option->get_lnames()) flags.push_back({name, "--" + flag});
    for (const auto& flag : option->get_snames()) flags.push_back({name, "-" + flag});
  }
  for (const auto* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    collect(*below, name + " " + below->get_name(), flags, commands);
  }
}

// The words of the case that has this name, in a function of the text for bash.
std::set<std::string> bash_words(const std::string& text, const std::string& function,
                                 const std::string& name) {
  const auto begin = text.find("\n" + function + "() {");
  const auto body = text.substr(begin, text.find("\n}\n", begin) - begin);
  const auto at = body.find("'" + name + "'");
  if (begin == std::string::npos || at == std::string::npos) return {};
  const auto value = body.find("REPLY='", at) + 7;
  std::istringstream words(body.substr(value, body.find('\'', value) - value));
  return {std::istream_iterator<std::string>(words), {}};
}

// The function of one command, in the text for zsh.
std::string zsh_body(const std::string& text, std::string command) {
  std::replace(command.begin(), command.end(), ' ', '_');
  const auto begin = text.find("\n_" + command + "() {");
  return begin == std::string::npos ? "" : text.substr(begin, text.find("\n}\n", begin) - begin);
}

std::string with_plain_hyphens(std::string man) {
  for (size_t at = 0; (at = man.find("\\-", at)) != std::string::npos; ++at) man.erase(at, 1);
  return man;
}

// The section of one command, in a text with plain hyphens.
std::string man_section(const std::string& plain, const std::string& command) {
  const auto begin = std::min(plain.find(".SS \"" + command + " "), plain.size());
  return plain.substr(begin, plain.find("\n.S", begin + 1) - begin);
}

struct Texts {
  std::unique_ptr<CLI::App> app = build_cli();
  CommandOutline program = outline_of(*app, "lockstep");
  std::string bash = bash_completion(program);
  std::string zsh = zsh_completion(program);
  std::string man = with_plain_hyphens(man_page(program, "1.2.3"));
};

const Texts& texts_of_cli() {
  static const Texts texts;
  return texts;
}

bool in_a_word(char c) {
  return c == '-' || c == '_' || std::isdigit(static_cast<unsigned char>(c)) != 0 ||
         std::islower(static_cast<unsigned char>(c)) != 0;
}

// True if the text has this word, with no letter of another one on either side.
bool has_word(const std::string& text, const std::string& word) {
  for (auto at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    const auto end = at + word.size();
    if ((at == 0 || !in_a_word(text[at - 1])) && (end == text.size() || !in_a_word(text[end]))) return true;
  }
  return false;
}

void check_values(const Texts& texts, const std::string& flag, const std::vector<std::string>& values) {
  const std::set<std::string> wanted(values.begin(), values.end());
  const auto offered = bash_words(texts.bash, "_lockstep_values", "lockstep train " + flag);
  const auto zsh = zsh_body(texts.zsh, "lockstep train");
  const auto at = zsh.find(flag + "=[");
  REQUIRE(at != std::string::npos);
  const auto line = zsh.substr(at, zsh.find('\n', at) - at);
  const auto man = man_section(texts.man, flag == "--color" ? "lockstep" : "lockstep train");
  INFO(flag);
  CHECK(offered == wanted);
  std::string list;
  for (const auto& value : values) {
    list += (list.empty() ? "(" : " ") + value;
    CHECK_THAT(man, ContainsSubstring(value));
  }
  CHECK_THAT(line, ContainsSubstring(list + ")"));
}

}  // namespace

TEST_CASE("every command and flag is in the completions and in the man page") {
  const auto& texts = texts_of_cli();
  std::vector<Flag> flags;
  std::vector<std::string> commands;
  collect(*texts.app, "lockstep", flags, commands);
  REQUIRE(commands.size() > 20);
  REQUIRE(flags.size() > 200);
  std::map<std::string, std::string> zsh, man;  // by command
  for (const auto& command : commands) {
    INFO(command);
    CHECK_FALSE((zsh[command] = zsh_body(texts.zsh, command)).empty());
    CHECK_FALSE((man[command] = man_section(texts.man, command)).empty());
    const auto space = command.rfind(' ');
    if (space == std::string::npos) continue;
    CHECK(bash_words(texts.bash, "_lockstep_subcommands", command.substr(0, space))
              .count(command.substr(space + 1)) == 1);
  }
  for (const auto& [command, flag] : flags) {
    INFO(command << " " << flag);
    CHECK(bash_words(texts.bash, "_lockstep_flags", command).count(flag) == 1);
    if (command != "lockstep help") CHECK_THAT(zsh[command], ContainsSubstring(flag));
    const bool of_all = flag == "--help" || flag == "-h" || flag == "--color";
    CHECK_THAT(man[of_all ? "lockstep" : command], ContainsSubstring("\\fB" + flag + "\\fR"));
  }
}

TEST_CASE("every value of an enumeration is offered") {
  const auto& texts = texts_of_cli();
  check_values(texts, "--recipe", recipe_names());
  check_values(texts, "--optimizer", names_of(kOptimizerNames));
  check_values(texts, "--schedule", names_of(kScheduleNames));
  check_values(texts, "--precision", names_of(kPrecisionNames));
  check_values(texts, "--bn", names_of(kBnPolicyNames));
  check_values(texts, "--sync", names_of(kSyncModeNames));
  check_values(texts, "--allreduce", names_of(kAllreduceNames));
  check_values(texts, "--compress", names_of(kCompressNames));
  check_values(texts, "--kernels", names_of(kKernelsNames));
  check_values(texts, "--cuda-graph", names_of(kCudaGraphNames));
  check_values(texts, "--on-nan", names_of(kOnNanNames));
  check_values(texts, "--on-save-error", names_of(kOnSaveErrorNames));
  check_values(texts, "--progress", names_of(kProgressDisplayNames));
  check_values(texts, "--color", {"auto", "always", "never"});
}

// Whatever the help shows as a|b is a list of values.
TEST_CASE("every list of values in the help is offered") {
  const auto& texts = texts_of_cli();
  size_t lists = 0;
  const auto of_program = man_section(texts.man, "lockstep");
  for (const auto* command : all_commands(texts.program)) {
    const auto zsh = zsh_body(texts.zsh, command->full_name);
    const auto man = man_section(texts.man, command->full_name);
    for (const auto& flag : command->flags) {
      std::istringstream parts(flag.value);
      for (std::string part; flag.value.find('|') != std::string::npos && std::getline(parts, part, '|');) {
        if (std::isupper(static_cast<unsigned char>(part.front())) != 0) continue;  // N, DIR
        INFO(command->full_name << " " << flag.name << " " << part);
        CHECK(bash_words(texts.bash, "_lockstep_values", command->full_name + " " + flag.name).count(part) ==
              1);
        if (command->full_name != "lockstep help") {  // it takes names of commands alone
          CHECK(has_word(zsh, part));
        }
        CHECK(has_word(flag.name == "--color" ? of_program : man, part));  // it stands there once
        ++lists;
      }
    }
  }
  CHECK(lists > 100);
}

TEST_CASE("files and folders are offered where a flag takes one") {
  const auto& texts = texts_of_cli();
  const auto values = [&](const std::string& name) {
    return bash_words(texts.bash, "_lockstep_values", name);
  };
  CHECK(values("lockstep train --save") == std::set<std::string>{"@files"});
  CHECK(values("lockstep train --output") == std::set<std::string>{"@folders"});
  CHECK(values("lockstep train --resume") == std::set<std::string>{"auto", "@folders"});
  CHECK(values("lockstep train --data") == std::set<std::string>{"synthetic", "@files", "@folders"});
  CHECK(values("lockstep train --epochs") == std::set<std::string>{"@"});
  CHECK(values("lockstep train --quiet").empty());
  CHECK(bash_words(texts.bash, "_lockstep_arguments", "lockstep plot") == std::set<std::string>{"@files"});
  CHECK(bash_words(texts.bash, "_lockstep_arguments", "lockstep completion") ==
        std::set<std::string>{"bash", "zsh"});
}

TEST_CASE("a value's name is not taken for its type") {
  const auto app = build_cli();
  const auto help = app->get_formatter()->make_help(app->get_subcommand("train"), "lockstep train",
                                                    CLI::AppFormatMode::Normal);
  CHECK_THAT(help, ContainsSubstring("--master HOST:PORT") && ContainsSubstring("--recipe NAME ") &&
                       ContainsSubstring("--resume-anyway SETTING") &&
                       ContainsSubstring("--precision fp32|tf32|bf16|fp16|fp64") &&
                       ContainsSubstring("--epochs N ") && ContainsSubstring("--lr X "));
}

TEST_CASE("texts of the command line cannot become requests of roff or words of zsh") {
  CommandOutline program{.name = "lockstep", .full_name = "lockstep", .text = ".so /etc/passwd"};
  program.flags = {{.name = "--what", .value = "X", .text = "it's [here]: a\\b"}};
  const auto man = man_page(program, "1");
  CHECK_THAT(man, ContainsSubstring("\n\\&.so /etc/passwd") && ContainsSubstring("it\\(aqs [here]: a\\eb"));
  CHECK_THAT(zsh_completion(program), ContainsSubstring("[it'\\''s \\[here\\]\\: a\\\\b]"));
}
