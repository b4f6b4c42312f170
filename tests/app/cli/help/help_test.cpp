// The help of every command, and flags that are parsed into enumerations.
#include <CLI/CLI.hpp>

#include <lockstep/tests/catch.h>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/app/commands/commands.h>
#include <lockstep/app/train/plan/flags.h>
#include <lockstep/tests/app/train_command.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::parsed_flags;

namespace {

constexpr size_t kColumns = 80;

std::string help_text(const CLI::App& command, const std::string& name) {
  return command.get_formatter()->make_help(&command, name, CLI::AppFormatMode::Normal);
}

void check_columns(const CLI::App& command, const std::string& name) {
  std::istringstream text(help_text(command, name));
  for (std::string line; std::getline(text, line);) {
    INFO(name << ": " << line);
    CHECK(line.size() <= kColumns);
    CHECK((line.empty() || line.back() != ' '));
  }
  for (const auto* subcommand : command.get_subcommands([](const CLI::App*) { return true; })) {
    check_columns(*subcommand, name + " " + subcommand->get_name());
  }
}

// "(auto: where possible) (default auto)" would be two parentheses in a row.
void check_defaults(const CLI::App& command) {
  for (const auto* option : command.get_options()) {
    INFO(command.get_name() << " " << option->get_name() << ": " << option->get_description());
    const bool has_default = option->get_items_expected_max() > 0 && !option->get_default_str().empty();
    CHECK_FALSE((has_default && option->get_description().ends_with(')')));
  }
  for (const auto* inner : command.get_subcommands([](const CLI::App*) { return true; })) {
    check_defaults(*inner);
  }
}

// Where each heading of the help stands. All of them are there, in this order.
void check_headings(const std::string& help, const std::vector<std::string>& headings) {
  size_t place = 0;
  for (const auto& heading : headings) {
    INFO(heading);
    const auto found = help.find("\n" + heading + ":\n");
    REQUIRE(found != std::string::npos);
    CHECK(found > place);
    place = found;
  }
}

}  // namespace

TEST_CASE("no line of any help has more than 80 columns") {
  const auto app = build_cli();
  check_columns(*app, "lockstep");
}

TEST_CASE("the flags of train come in groups") {
  const auto app = build_cli();
  const auto train = help_text(*app->get_subcommand("train"), "lockstep train");
  check_headings(train, {"What to train", "Devices and batch", "Optimizer", "Gradients and arithmetic",
                         "Watching and keeping", "Processes", "Other flags"});
  // Every flag of train has a heading that says what it is for.
  for (const auto* option : app->get_subcommand("train")->get_options()) {
    const auto name = option->get_name();
    INFO(name);
    CHECK((option->get_group() != "Options") == (name != "--help"));
  }
  const auto* step = app->get_subcommand("bench")->get_subcommand("step");
  check_headings(help_text(*step, "lockstep bench step"),
                 {"What to train", "Devices and batch", "Optimizer", "Gradients and arithmetic", "Measuring",
                  "Other flags"});
  CHECK_THAT(help_text(*app->get_subcommand("devices"), "lockstep devices"), ContainsSubstring("\nFlags:\n"));
}

TEST_CASE("the usage shows which arguments may be left out") {
  const auto app = build_cli();
  CHECK_THAT(help_text(*app->get_subcommand("help"), "lockstep help"),
             ContainsSubstring("\nUsage: lockstep help [SUBCOMMAND...] [FLAGS]\n\nArguments:\n"
                               "  SUBCOMMAND...  "));
  CHECK_THAT(help_text(*app->get_subcommand("plot"), "lockstep plot"),
             ContainsSubstring("\nUsage: lockstep plot FILE... [FLAGS]\n\nArguments:\n  FILE...  "));
  CHECK_THAT(help_text(*app->get_subcommand("bench"), "lockstep bench"),
             ContainsSubstring("\nUsage: lockstep bench SUBCOMMAND [FLAGS]\n\nSubcommands:\n"));
}

TEST_CASE("the help shows the choices and the default") {
  const auto app = build_cli();
  const auto train = help_text(*app->get_subcommand("train"), "lockstep train");
  CHECK_THAT(train, ContainsSubstring("--kernels auto|direct|torch") && ContainsSubstring("(default auto)") &&
                        ContainsSubstring("--optimizer sgd|adam|adamw") &&
                        ContainsSubstring("(default sgd)"));
}

TEST_CASE("no default stands behind other words in parentheses") { check_defaults(*build_cli()); }

TEST_CASE("choices are parsed into enumerations") {
  const auto defaults = parsed_flags({});
  CHECK(defaults.trainer.replica.optimizer.kind == OptimizerKind::kSgd);
  CHECK_FALSE(defaults.schedule);
  CHECK_FALSE(defaults.sync);
  CHECK_FALSE(defaults.allreduce);
  const auto flags =
      parsed_flags({"--optimizer", "adamw", "--schedule", "cosine", "--precision", "bf16", "--bn", "average",
                    "--sync", "bucketed", "--allreduce", "ring", "--kernels=torch", "--cuda-graph", "off"});
  CHECK(flags.trainer.replica.optimizer.kind == OptimizerKind::kAdamW);
  CHECK(flags.schedule == Schedule::kCosine);
  CHECK(flags.trainer.replica.precision == Precision::kBf16);
  CHECK(flags.trainer.bn == BnPolicy::kAverage);
  CHECK(flags.sync == SyncMode::kBucketed);
  CHECK(flags.allreduce == Allreduce::kRing);
  CHECK(flags.kernels == Kernels::kTorch);
  CHECK(flags.trainer.replica.cuda_graph == CudaGraph::kOff);
}
