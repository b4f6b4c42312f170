// Hints for the flags and commands of other trainers: what they name exists.
#include <CLI/CLI.hpp>

#include <lockstep/tests/catch.h>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/cli/help/other_words.h>
#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/commands/commands.h>
#include <lockstep/support/split_text.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

using Words = std::vector<std::string>;

Words words_of(const std::string& text) {
  Words words;
  for (const auto word : split_text(text, ' ')) words.emplace_back(word);
  return words;
}

// "checkpoint export" of the program; null if there is none.
const CLI::App* command_of(const CLI::App& program, const Words& names) {
  const auto* command = &program;
  for (const auto& name : names) command = command ? subcommand_named(*command, name) : nullptr;
  return command;
}

// The parts of the hint in quotes that begin with "lockstep", without it.
std::vector<Words> commands_in(const std::string& hint) {
  std::vector<Words> commands;
  const std::regex quoted("'lockstep ([^']*)'");
  for (std::sregex_iterator at(hint.begin(), hint.end(), quoted), end; at != end; ++at) {
    commands.push_back(words_of((*at)[1]));
  }
  return commands;
}

// Checks that the values that the hint gives to flags with a list of them are on this list.
void check_values(const CLI::App& command, const std::string& hint) {
  const std::regex with_value("(--[a-z-]+) ([a-z0-9_]+)(,| |;|$)");
  for (std::sregex_iterator at(hint.begin(), hint.end(), with_value), end; at != end; ++at) {
    const auto* option = command.get_option_no_throw((*at)[1]);
    auto choices = option ? option->get_type_name() : "";  // "TEXT:fp32|bf16"
    choices.erase(0, choices.find(':') + 1);
    if (choices.find('|') == std::string::npos || (*at)[2] == "is") continue;
    INFO(choices);
    CHECK(("|" + choices + "|").find("|" + (*at)[2].str() + "|") != std::string::npos);
  }
}

// "error | hint". A program can parse one command line after the other.
std::string answer_of(CLI::App& program, const Words& words) {
  try {
    program.parse(Words(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    const auto usage = usage_error(program, error);
    return usage.message() + " | " + usage.hint();
  }
  return "accepted";
}

std::string answer_to(const Words& words) { return answer_of(*build_cli(), words); }

}  // namespace

TEST_CASE("hints for other trainers' words name flags and commands that exist") {
  const auto program = build_cli(), parser = build_cli();
  std::set<std::pair<std::string, std::string>> seen;
  for (const auto& [words, hint, only] : other_words()) {
    INFO(words << ": " << hint);
    const std::string typed(only.empty() ? "train" : only);
    const auto* command = subcommand_named(*program, typed);
    REQUIRE(command);
    for (const auto& flag : flags_named_in(hint)) {
      INFO(flag);
      CHECK(command->get_option_no_throw(flag));
    }
    check_values(*command, std::string(hint));
    for (auto& names : commands_in(std::string(hint))) {
      const auto flag = names.back().starts_with("--") ? names.back() : "";
      if (!flag.empty()) names.pop_back();
      const auto* other = command_of(*program, names);
      REQUIRE(other);
      const auto* option = flag.empty() ? nullptr : other->get_option_no_throw(flag);
      CHECK(flag.empty() == !option);
      CHECK_FALSE((option && option->get_description().starts_with("Old name")));
    }
    for (const auto& word : words_of(std::string(words))) {
      INFO(word);
      CHECK(seen.emplace(only, word).second);
      CHECK_FALSE(command->get_option_no_throw(word));
      CHECK_FALSE(subcommand_named(*program, word));
      const auto refused =
          word.starts_with("--") ? answer_of(*parser, {typed, word, "1"}) : answer_of(*parser, {word});
      CHECK_THAT(refused, ContainsSubstring(" | " + std::string(hint) + "; see 'lockstep "));
    }
  }
}

TEST_CASE("a hint is given only where its flags mean what it says") {
  const std::string devices = "cuda for one replica per GPU";
  for (const Words& words : {Words{"train", "--gpus", "2"},
                             {"train", "--GPUs=2"},
                             {"bench", "step", "--num_gpus", "2"},
                             {"eval", "--gpu", "0"},
                             {"sweep", "--no-cuda"}}) {
    CHECK_THAT(answer_to(words), ContainsSubstring(devices));
  }
  CHECK(answer_to({"plot", "--gpus", "2"}) ==
        "unknown flag '--gpus' for 'lockstep plot' | see 'lockstep plot --help'");
  // Both have --output, for other files.
  for (const auto* command : {"plot", "doctor"}) {
    CHECK_THAT(answer_to({command, "--tensorboard"}), !ContainsSubstring("TensorBoard"));
  }
  CHECK_THAT(answer_to({"sweep", "--resume-from", "x"}), !ContainsSubstring("a run's newest"));
  // Words of commands are no flags, and those of flags no commands; misspelt flags have their own hint.
  CHECK_THAT(answer_to({"train", "--resum", "x"}), ContainsSubstring("did you mean '--resume'?"));
  CHECK(answer_to({"data", "export"}) ==
        "unknown subcommand 'export' of 'lockstep data' | see 'lockstep data --help'");
}
