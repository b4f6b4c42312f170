#include <lockstep/app/cli/help/usage.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/cli/help/other_words.h>
#include <lockstep/app/cli/launched_words.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

// The command as typed, word by word: {lockstep, data, verify}.
using Chain = std::vector<const CLI::App*>;

Chain selected_commands(const CLI::App& app) {
  Chain chain{&app};
  for (auto next = app.get_subcommands(); !next.empty(); next = chain.back()->get_subcommands()) {
    chain.push_back(next.front());
  }
  return chain;
}

std::string name_of(const Chain& chain) {
  std::string name;
  for (const auto* command : chain) name += (name.empty() ? "" : " ") + command->get_name();
  return name;
}

std::string see_help(const Chain& chain) { return fmt::format("see '{} --help'", name_of(chain)); }

// "did you mean 'x'? see 'lockstep train --help'"
std::string hint_with(const std::optional<std::string>& near, const Chain& chain) {
  return near ? fmt::format("did you mean '{}'? {}", *near, see_help(chain)) : see_help(chain);
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> flags;
  for (const auto* option : command.get_options()) {
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
    for (const auto& name : option->get_snames()) flags.push_back("-" + name);
  }
  return flags;
}

bool has_flag(const CLI::App& command, const std::string& flag) {
  const auto flags = flag_names(command);
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& command) {
  return command.get_subcommands([](const CLI::App*) { return true; });
}

// The commands that have the flag: the last of `chain` and those below it.
std::vector<Chain> owners_of(const std::string& flag, const Chain& chain) {
  if (has_flag(*chain.back(), flag)) return {chain};
  std::vector<Chain> owners;
  for (const auto* subcommand : subcommands_of(*chain.back())) {
    auto longer = chain;
    longer.push_back(subcommand);
    for (auto& owner : owners_of(flag, longer)) owners.push_back(std::move(owner));
  }
  return owners;
}

// For a flag of other commands.
std::string owners_hint(const std::vector<Chain>& owners, const Chain& chain) {
  const auto& first = owners.front();
  if (owners.size() == 1) {
    return fmt::format("it is a flag of '{}'; {}", name_of(first), see_help(first));
  }
  return fmt::format("it is a flag of {} other commands, such as '{}'; {}", owners.size(), name_of(first),
                     see_help(chain));
}

UsageError unknown_flag(const std::string& word, const Chain& chain) {
  const auto flag = word.substr(0, word.find('='));
  // A known flag is left over only if it stood before the command's name.
  if (has_flag(*chain.back(), flag)) {
    return UsageError(fmt::format("the flag {} must come after '{}'", in_quotes(flag), name_of(chain)),
                      fmt::format("write '{} {} ...'", name_of(chain), flag));
  }
  const auto what = fmt::format("unknown flag {} for '{}'", in_quotes(flag), name_of(chain));
  if (const auto hint = other_words_hint(flag, *chain.back()); !hint.empty()) {
    return UsageError(what, fmt::format("{}; {}", hint, see_help(chain)));
  }
  // The command's own flags come first, then those of the program.
  auto near = nearest(flag, flag_names(*chain.back()));
  if (!near) near = nearest(flag, flag_names(*chain.front()));
  if (!near) {
    const auto owners = owners_of(flag, {chain.front()});
    if (!owners.empty()) return UsageError(what, owners_hint(owners, chain));
  }
  return UsageError(what, hint_with(near, chain));
}

struct Found {
  const CLI::App* command;
  const CLI::Option* option;
};

std::optional<Found> find_flag(const std::string& flag, const Chain& chain) {
  for (auto command = chain.rbegin(); command != chain.rend(); ++command) {
    if (const auto* option = (*command)->get_option_no_throw(flag)) return Found{*command, option};
  }
  return std::nullopt;
}

// The flag, or the environment variable that has set it.
std::string subject(const std::string& flag, const std::optional<Found>& found) {
  if (!found || found->option->get_envname().empty()) return flag;
  const auto& typed = found->command->parse_order();
  const bool on_command_line = std::find(typed.begin(), typed.end(), found->option) != typed.end();
  return on_command_line ? flag : found->option->get_envname();
}

// `message` after the flag's name: "must be above 0, got -1", and perhaps a hint on a second line.
UsageError bad_value(const std::string& flag, const std::string& message, const Chain& chain) {
  const auto split = std::min(message.find('\n'), message.size());
  const auto hint = split < message.size() ? message.substr(split + 1) + " " : "";
  return UsageError(fmt::format("{} {}", subject(flag, find_flag(flag, chain)), message.substr(0, split)),
                    hint + see_help(chain));
}

// CLI11 throws ArgumentMismatch for both.
UsageError missing_or_repeated(const std::string& flag, const Chain& chain) {
  const auto found = find_flag(flag, chain);
  if (!found || found->option->count() <= 1) {
    return UsageError(fmt::format("{} needs a value", flag), see_help(chain));
  }
  std::vector<std::string> values;
  if (found->option->get_items_expected_max() > 0) {
    for (const auto& value : found->option->results()) values.push_back(in_quotes(value));
  }
  const auto with = values.empty() ? "" : fmt::format(": {}", fmt::join(values, " and "));
  return UsageError(fmt::format("{} is given {} times{}", flag, found->option->count(), with),
                    "keep one of them");
}

// text: "--processes is required"
UsageError missing(const std::string& text, const Chain& chain) {
  const auto flag = text.substr(0, text.find(' '));
  const auto found = flag.starts_with("--") ? find_flag(flag, chain) : std::nullopt;
  const auto add = found ? fmt::format("add {} {}; ", flag, found->option->get_type_name()) : "";
  return UsageError(text, add + see_help(chain));
}

// CLI11 puts the flag's name before its message: "--lr: must be ..."; "Could not convert: --lr = abc".
struct Named {
  std::string flag;
  std::string message;
};

Named split_message(std::string_view text, std::string_view separator) {
  const auto at = text.find(separator);
  if (at == std::string_view::npos) return {std::string(text), ""};
  return {std::string(text.substr(0, at)), std::string(text.substr(at + separator.size()))};
}

}  // namespace

const CLI::App* subcommand_named(const CLI::App& command, const std::string& name) {
  for (const auto* subcommand : subcommands_of(command)) {
    if (subcommand->get_name() == name) return subcommand;
  }
  return nullptr;
}

UsageError unexpected_word(const std::string& word, const std::vector<const CLI::App*>& commands) {
  if (word.size() > 1 && word.front() == '-' && word != "--") return unknown_flag(word, commands);

  std::vector<std::string> names;
  for (const auto* subcommand : subcommands_of(*commands.back())) names.push_back(subcommand->get_name());
  if (names.empty()) {
    const auto what = fmt::format("unexpected argument {} for '{}'", in_quotes(word), name_of(commands));
    if (commands.back()->get_name() == kLaunch) {
      return UsageError(what, fmt::format("write -- before what is launched: 'lockstep launch -n 2 -- {}'",
                                          printable(word)));
    }
    return UsageError(what, hint_with(nearest(word, flag_names(*commands.back())), commands));
  }
  if (const auto hint = other_words_hint(word, *commands.back()); commands.size() == 1 && !hint.empty()) {
    return UsageError(fmt::format("unknown subcommand {}", in_quotes(word)),
                      fmt::format("{}; {}", hint, see_help(commands)));
  }
  const auto of = commands.size() > 1 ? fmt::format(" of '{}'", name_of(commands)) : "";
  return UsageError(fmt::format("unknown subcommand {}{}", in_quotes(word), of),
                    hint_with(nearest(word, names), commands));
}

UsageError usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chain = selected_commands(app);
  const std::string_view text = error.what();
  const auto named = split_message(text, ": ");

  if (dynamic_cast<const CLI::ValidationError*>(&error)) return bad_value(named.flag, named.message, chain);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error)) return missing_or_repeated(named.flag, chain);
  if (dynamic_cast<const CLI::ConversionError*>(&error)) {
    const auto [flag, value] = split_message(named.message, " = ");
    return bad_value(flag, fmt::format("does not accept {}", in_quotes(value)), chain);
  }
  const auto left_over = app.remaining();
  if (!left_over.empty()) return unexpected_word(left_over.front(), chain);
  if (dynamic_cast<const CLI::RequiredError*>(&error)) return missing(std::string(text), chain);
  return UsageError(std::string(text), see_help(chain));
}

void refuse_empty_values(const CLI::App& app, std::span<const std::string> words) {
  const auto end = std::find(words.begin(), words.end(), "--");
  const auto asks = [](const std::string& word) { return word == "--help" || word == "-h"; };
  if (std::any_of(words.begin(), end, asks)) return;
  Chain chain{&app};
  for (auto word = words.begin(); word != end; ++word) {
    if (const auto* next = subcommand_named(*chain.back(), *word)) chain.push_back(next);
    if (!word->starts_with("--") || word->find('=') + 1 != word->size()) continue;
    const auto flag = word->substr(0, word->size() - 1);
    const auto found = find_flag(flag, chain);
    if (!found) continue;  // parsing refuses it
    const bool takes_value = found->option->get_items_expected_max() > 0;
    throw bad_value(flag, takes_value ? "needs a value after '='" : "must be 1, 0, true or false, got ''",
                    chain);
  }
}

bool help_requested(const CLI::App& app) {
  const auto chain = selected_commands(app);
  return std::any_of(chain.begin(), chain.end(), [](const CLI::App* command) {
    const auto* help = command->get_help_ptr();
    return help && help->count() > 0;
  });
}

bool ends_before_subcommand(const CLI::App& app) {
  return app.remaining().empty() && !subcommands_of(*selected_commands(app).back()).empty();
}

}  // namespace lockstep
