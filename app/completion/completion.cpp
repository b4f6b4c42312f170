#include <lockstep/app/completion/completion.h>

#include <CLI/CLI.hpp>

#include <memory>

#include <lockstep/app/cli/validators.h>
#include <lockstep/app/machine/version.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

constexpr const char* kBash = "bash";
constexpr const char* kZsh = "zsh";

}  // namespace

void setup_completion(CLI::App& app) {
  auto* completion = app.add_subcommand("completion", "Print what bash or zsh needs to complete commands");
  const auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "The shell")->required()->check(one_of({kBash, kZsh}));
  completion->footer(
      "For this shell: source <(lockstep completion bash). For zsh, put the output into a file _lockstep in "
      "a "
      "folder of $fpath.");
  completion->callback([&app, shell] {
    const auto program = outline_of(app, app.get_name());
    write_stdout(*shell == kBash ? bash_completion(program) : zsh_completion(program));
  });

  auto* man = app.add_subcommand("man", "Print the manual page, which man reads");
  man->footer("To read it: lockstep man | man -l -");
  man->callback([&app] { write_stdout(man_page(outline_of(app, app.get_name()), version_number())); });
}

}  // namespace lockstep
