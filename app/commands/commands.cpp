#include <lockstep/app/commands/commands.h>

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/app/bench/bench.h>
#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/help/help.h>
#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/commands/data_show.h>
#include <lockstep/app/commands/data_verify.h>
#include <lockstep/app/commands/demo.h>
#include <lockstep/app/commands/devices.h>
#include <lockstep/app/commands/eval.h>
#include <lockstep/app/commands/list_recipes.h>
#include <lockstep/app/commands/predict.h>
#include <lockstep/app/commands/program_show.h>
#include <lockstep/app/completion/completion.h>
#include <lockstep/app/doctor/doctor.h>
#include <lockstep/app/launch/launch.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/plot/plot.h>
#include <lockstep/app/sweep/sweep.h>
#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/app/train/checkpoint/command.h>
#include <lockstep/app/train/config/config_file.h>
#include <lockstep/app/train/train.h>
#include <lockstep/support/printable.h>
#include <lockstep/support/suggest.h>

namespace lockstep {
namespace {

constexpr std::string_view kVariablePrefix = "LOCKSTEP_FLAG_";

std::vector<CLI::App*> subcommands_of(CLI::App& app) {
  return app.get_subcommands([](CLI::App*) { return true; });
}

std::vector<CLI::Option*> options_of(CLI::App& app) {
  return app.get_options([](CLI::Option*) { return true; });
}

// Called for the command that is run: a variable meant for `train` must not stop `devices`.
void read_environment(CLI::App& app) {
  for (auto* option : options_of(app)) {
    if (const auto name = environment_name(app, *option); !name.empty()) option->envname(name);
  }
}

// CLI11 from 2.4 on ignores a variable whose value a check refuses, instead of ending with the check's words.
void refuse_ignored_variables(CLI::App& app) {
  for (auto* option : options_of(app)) {
    const char* value = option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
    if (option->count() > 0 || !value || !*value) continue;
    option->add_result(value);
    option->run_callback();
  }
  for (auto* subcommand : app.get_subcommands()) refuse_ignored_variables(*subcommand);
}

// Takes flags that are not on the command line from the environment, then from the configuration file.
void complete_flags(CLI::App& root) {
  refuse_ignored_variables(root);
  apply_config_files(root);
}

void apply_to_options(CLI::App& app) {
  for (auto* option : options_of(app)) {
    if (option == app.get_help_ptr() || option == app.get_version_ptr()) continue;
    const bool has_value = option->get_items_expected_max() > 0;
    option->transform(has_value ? not_a_flag() : boolean());
    if (!has_value) option->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
}

void collect_variables(CLI::App& app, std::vector<std::string>& names) {
  for (const auto* option : options_of(app)) {
    if (auto name = environment_name(app, *option); !name.empty()) names.push_back(std::move(name));
  }
  for (auto* subcommand : subcommands_of(app)) collect_variables(*subcommand, names);
}

// Compared without the prefix, which would make any two names similar.
std::optional<std::string> nearest_variable(const std::string& name, std::vector<std::string> known) {
  for (auto& variable : known) variable.erase(0, kVariablePrefix.size());
  const auto near = nearest(name.substr(kVariablePrefix.size()), known);
  return near ? std::optional(std::string(kVariablePrefix) + *near) : std::nullopt;
}

// A misspelt variable has no effect. It is not an error: it may be meant for another version.
void warn_of_unknown_variables(CLI::App& app) {
  std::vector<std::string> known;
  collect_variables(app, known);
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    if (!text.starts_with(kVariablePrefix)) continue;
    const std::string name(text.substr(0, text.find('=')));
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto near = nearest_variable(name, known);
    const auto hint = near ? fmt::format("; did you mean '{}'?", *near) : "";
    warn(fmt::format("the variable {} sets no flag and is ignored{}", in_quotes(name), hint));
  }
}

// words: {"bench", "step"} for the help of `lockstep bench step`.
void show_help(CLI::App& root, const std::vector<std::string>& words) {
  std::vector<const CLI::App*> commands{&root};
  auto name = root.get_name();
  for (const auto& word : words) {
    const auto* found = subcommand_named(*commands.back(), word);
    if (!found) throw unexpected_word(word, commands);
    commands.push_back(found);
    name += " " + word;
  }
  write_stdout(root.get_formatter()->make_help(commands.back(), name, CLI::AppFormatMode::Normal));
}

void setup_help(CLI::App& app) {
  auto* help = app.add_subcommand("help", "Show the help of a subcommand");
  const auto words = std::make_shared<std::vector<std::string>>();
  help->add_option("SUBCOMMAND", *words, "The subcommand; none: the program");
  help->callback([&app, words] { show_help(app, *words); });
}

void setup_version(CLI::App& app) {
  auto* version = app.add_subcommand("version", "Show the versions, of LibTorch and the compiler, too");
  version->callback([] { write_stdout(version_lines() + "\n"); });
}

}  // namespace

std::unique_ptr<CLI::App> build_cli(std::vector<std::string> launched) {
  auto app =
      std::make_unique<CLI::App>("Data-parallel training on LibTorch, on one device or on many.", "lockstep");
  app->formatter(std::make_shared<HelpFormatter>());
  app->option_defaults()->always_capture_default();  // the help shows each default
  app->set_help_flag("-h,--help", "Show this help");
  app->set_version_flag("-V,--version", version_lines,
                        "Show the versions, of LibTorch and the compiler, too");
  app->add_option("--color", "Colours; auto: only on a terminal")
      ->default_str("auto")
      ->check(one_of({"auto", "always", "never"}));
  app->footer("Every flag can also be set in the environment: --batch-size as LOCKSTEP_FLAG_BATCH_SIZE.");
  app->fallthrough();  // --color may follow the subcommand

  setup_train(*app);
  setup_launch(*app, std::move(launched));
  setup_eval(*app);
  setup_predict(*app);
  setup_recipes(*app);
  setup_bench(*app);
  setup_plot(*app);
  setup_sweep(*app);
  setup_demo(*app);
  setup_devices(*app);
  setup_doctor(*app);
  setup_checkpoint(*app);
  setup_data(*app);
  setup_data_show(*app->get_subcommand("data"));
  setup_program(*app);
  setup_completion(*app);
  setup_help(*app);
  setup_version(*app);
  app->footer("'lockstep SUBCOMMAND --help' lists the flags of a subcommand. " + app->get_footer());

  apply_conventions(*app);
  app->parse_complete_callback([root = app.get()] {
    complete_flags(*root);
    set_up_logging(Terminal(STDERR_FILENO, color_mode(*root)));
    warn_of_unknown_variables(*root);
  });
  return app;
}

void apply_conventions(CLI::App& app) {
  apply_to_options(app);
  const auto subcommands = subcommands_of(app);
  if (!subcommands.empty()) app.require_subcommand(1);
  for (auto* subcommand : subcommands) apply_conventions(*subcommand);
  app.preparse_callback([&app](size_t) { read_environment(app); });
  if (!app.get_parent()) app.parse_complete_callback([&app] { complete_flags(app); });
}

std::string environment_name(const CLI::App& app, const CLI::Option& option) {
  const bool action = &option == app.get_help_ptr() || &option == app.get_version_ptr();
  if (action || option.get_lnames().empty()) return "";
  // Elsewhere --json takes a file: its variable must not stop `devices`, whose --json takes no value.
  if (option.check_name("--json") && option.get_items_expected_max() == 0) return "";
  std::string name(kVariablePrefix);
  for (const char c : option.get_lnames().front()) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

}  // namespace lockstep
