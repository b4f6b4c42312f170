// The conventions of the command line, on a small tree of commands.
#include <CLI/CLI.hpp>

#include <lockstep/tests/catch.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/cli/color_mode.h>
#include <lockstep/app/cli/help/help.h>
#include <lockstep/app/cli/help/usage.h>
#include <lockstep/app/cli/validators.h>
#include <lockstep/app/commands/commands.h>
#include <lockstep/support/process/text_command.h>
#include <lockstep/tests/support/variable.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::Variable;

namespace {

struct Commands {
  CLI::App app{"Text about the program.", "lockstep"};
  int64_t epochs = 10;
  int64_t batch_size = 256;
  int64_t seed = 0;
  double lr = .2;
  std::string metrics;
  std::string sync = "bucketed";
  bool quiet = false;
  std::string verified;

  Commands() {
    app.formatter(std::make_shared<HelpFormatter>());
    app.option_defaults()->always_capture_default();
    app.set_help_flag("-h,--help", "Show this help");
    app.add_option("--color", "Colours")
        ->check(one_of({"auto", "always", "never"}).description(""))
        ->type_name("WHEN");
    app.fallthrough();
    auto* train = app.add_subcommand("train", "Train a model");
    train->add_option("--epochs", epochs, "Passes over the data")->check(positive_int());
    train->add_option("--batch-size", batch_size, "Rows")->check(positive_int(1'000'000));
    train->add_option("--seed", seed, "First random number")->check(non_negative_int());
    train->add_option("--lr", lr, "Learning rate")->check(positive_number());
    train->add_option("--metrics", metrics, "File of results")->type_name("FILE");
    train->add_option("--sync", sync, "When gradients are summed")
        ->check(one_of({"parameterwise", "bucketed", "overlapped"}));
    train->add_flag("--quiet", quiet, "Say less");
    auto* data = app.add_subcommand("data", "Data sets");
    data->add_subcommand("verify", "Check the files")
        ->add_option("--data", verified, "Folder")
        ->type_name("DIR");
    apply_conventions(app);
  }

  void parse(std::vector<std::string> words) {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes them from the back
  }
};

// "error | hint" of a command line that must be refused.
std::string refusal(const std::vector<std::string>& words) {
  Commands commands;
  const auto text = [](const UsageError& usage) {
    CHECK(usage.exit_code() == ExitCode::kUsage);
    return usage.message() + " | " + usage.hint();
  };
  try {
    refuse_empty_values(commands.app, words);
    commands.parse(words);
  } catch (const CLI::ParseError& error) {
    return text(usage_error(commands.app, error));
  } catch (const UsageError& usage) {
    return text(usage);
  }
  return "accepted";
}

std::string refusal_of_flag(const std::string& flag, const std::string& value) {
  return refusal({"train", flag, value});
}

constexpr const char* kSeeTrain = " | see 'lockstep train --help'";

}  // namespace

TEST_CASE("correct command lines are accepted") {
  Commands commands;
  commands.parse({"train", "--epochs", "3", "--lr=1e-3", "--seed", "0", "--quiet", "--metrics", "-", "--sync",
                  "overlapped"});
  CHECK(commands.epochs == 3);
  CHECK(commands.lr == 1e-3);
  CHECK(commands.quiet);
  CHECK(commands.sync == "overlapped");
  CHECK(commands.metrics == "-");
}

TEST_CASE("unknown subcommands") {
  CHECK(refusal({"trian"}) == "unknown subcommand 'trian' | did you mean 'train'? see 'lockstep --help'");
  CHECK(refusal({"trian", "--epochs", "3"}) ==
        "unknown subcommand 'trian' | did you mean 'train'? see 'lockstep --help'");
  CHECK(refusal({"xyzzy"}) == "unknown subcommand 'xyzzy' | see 'lockstep --help'");
  CHECK(refusal({""}) == "unknown subcommand '' | see 'lockstep --help'");
  CHECK(refusal({"data", "verfy"}) ==
        "unknown subcommand 'verfy' of 'lockstep data' | did you mean 'verify'? see 'lockstep data --help'");
}

TEST_CASE("unknown flags") {
  const std::string epoch =
      "unknown flag '--epoch' for 'lockstep train' | did you mean '--epochs'? see 'lockstep train --help'";
  CHECK(refusal({"train", "--epoch", "3"}) == epoch);
  CHECK(refusal({"train", "--epoch=3"}) == epoch);
  CHECK(refusal({"train", "--epoch="}) == epoch);
  CHECK(refusal({"train", "--quiet", "--epoch", "3", "--lr", ".1"}) == epoch);
  CHECK(refusal({"train", "-epochs", "3"}) ==
        "unknown flag '-epochs' for 'lockstep train' | did you mean '--epochs'? see 'lockstep train --help'");
  CHECK(refusal({"train", "--colour", "never"}) ==
        "unknown flag '--colour' for 'lockstep train' | did you mean '--color'? see 'lockstep train --help'");
  CHECK(refusal({"train", "--frobnicate"}) ==
        std::string("unknown flag '--frobnicate' for 'lockstep train'") + kSeeTrain);
}

TEST_CASE("flags of another command") {
  CHECK(refusal({"data", "verify", "--batch-size", "3"}) ==
        "unknown flag '--batch-size' for 'lockstep data verify' | it is a flag of 'lockstep train'; see "
        "'lockstep train --help'");
  CHECK(refusal({"--batch-size", "3"}) ==
        "unknown flag '--batch-size' for 'lockstep' | it is a flag of 'lockstep train'; see 'lockstep train "
        "--help'");
  CHECK(refusal({"--epochs", "3", "train"}) ==
        "the flag '--epochs' must come after 'lockstep train' | write 'lockstep train --epochs ...'");
}

TEST_CASE("unexpected arguments") {
  CHECK(refusal({"train", "fast"}) ==
        std::string("unexpected argument 'fast' for 'lockstep train'") + kSeeTrain);
  CHECK(refusal({"train", "data"}) ==
        std::string("unexpected argument 'data' for 'lockstep train'") + kSeeTrain);
  CHECK(refusal({"train", "epochs", "3"}) ==
        "unexpected argument 'epochs' for 'lockstep train' | did you mean '--epochs'? see 'lockstep train "
        "--help'");
  CHECK(refusal({"train", "--epochs", "3", "4"}) ==
        std::string("unexpected argument '4' for 'lockstep train'") + kSeeTrain);
}

TEST_CASE("missing and repeated values") {
  CHECK(refusal({"train", "--epochs"}) == std::string("--epochs needs a value") + kSeeTrain);
  CHECK(refusal({"train", "--metrics", "--quiet"}) ==
        std::string("--metrics needs a value, but '--quiet' follows") + kSeeTrain);
  CHECK(refusal({"train", "--epochs", "3", "--epochs", "5"}) ==
        "--epochs is given 2 times: '3' and '5' | keep one of them");
  CHECK(refusal({"train", "--quiet", "--quiet"}) == "--quiet is given 2 times | keep one of them");
  CHECK(refusal({"train", "--quiet=maybe"}) ==
        std::string("--quiet must be 1, 0, true or false, got 'maybe'") + kSeeTrain);
}

TEST_CASE("a flag with = and an empty value is refused") {
  CHECK(refusal({"train", "--quiet="}) ==
        std::string("--quiet must be 1, 0, true or false, got ''") + kSeeTrain);
  CHECK(refusal({"train", "--epochs=", "3"}) == std::string("--epochs needs a value after '='") + kSeeTrain);
  CHECK(refusal({"train", "--quiet", "--color="}) ==
        std::string("--color needs a value after '='") + kSeeTrain);
  CHECK(refusal({"--color=", "train"}) == "--color needs a value after '=' | see 'lockstep --help'");
  CHECK(refusal({"data", "verify", "--data="}) ==
        "--data needs a value after '=' | see 'lockstep data verify --help'");
  CHECK(refusal({"train", "--metrics", ""}) == "accepted");
  CHECK(refusal({"train", "--metrics==", "--quiet=1"}) == "accepted");
}

TEST_CASE("a word that is not one of the choices") {
  CHECK(refusal_of_flag("--sync", "bucketted") ==
        "--sync must be parameterwise, bucketed or overlapped, got 'bucketted' | did you mean 'bucketed'? "
        "see 'lockstep "
        "train --help'");
  CHECK(refusal_of_flag("--sync", "x") ==
        std::string("--sync must be parameterwise, bucketed or overlapped, got 'x'") + kSeeTrain);
  CHECK_THAT(refusal_of_flag("--color", "nevr"),
             ContainsSubstring("--color must be auto, always or never, got 'nevr' | did you mean 'never'?"));
}

TEST_CASE("whole numbers") {
  CHECK(refusal_of_flag("--batch-size", "0") ==
        std::string("--batch-size must be at least 1, got 0") + kSeeTrain);
  CHECK(refusal_of_flag("--batch-size", "-5") ==
        std::string("--batch-size must be at least 1, got -5") + kSeeTrain);
  CHECK(refusal_of_flag("--batch-size", "1000001") ==
        std::string("--batch-size must be at most 1,000,000, got 1000001") + kSeeTrain);
  CHECK(refusal_of_flag("--seed", "-1") == std::string("--seed must be at least 0, got -1") + kSeeTrain);
  CHECK(refusal_of_flag("--epochs", "99999999999999999999") ==
        std::string("--epochs must be at most 9,223,372,036,854,775,807, got 99999999999999999999") +
            kSeeTrain);
  CHECK(refusal_of_flag("--epochs", "-99999999999999999999") ==
        std::string("--epochs must be at least 1, got -99999999999999999999") + kSeeTrain);
  for (const std::string text :
       {"abc", "2.5", "3x", "1e3", "0x10", "010", "+-3", "--", " 3", "1,000", "nan"}) {
    CAPTURE(text);
    CHECK_THAT(refusal({"train", "--epochs=" + text}),
               ContainsSubstring("--epochs") && !ContainsSubstring("accepted"));
  }
  CHECK(refusal_of_flag("--epochs", "2.5") ==
        std::string("--epochs is not a whole number: '2.5'") + kSeeTrain);
  CHECK(refusal_of_flag("--epochs", "+3") == "accepted");
}

TEST_CASE("numbers") {
  CHECK(refusal_of_flag("--lr", "abc") == std::string("--lr is not a number: 'abc'") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "0") == std::string("--lr must be above 0, got 0") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "-.1") == std::string("--lr must be above 0, got -.1") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "nan") == std::string("--lr must be a finite number, got nan") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "inf") == std::string("--lr must be a finite number, got inf") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "1e400") ==
        std::string("--lr is too large or too small for a double: '1e400'") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", "0,5") == std::string("--lr is not a number: '0,5'") + kSeeTrain);
  CHECK(refusal_of_flag("--lr", ".05") == "accepted");
}

TEST_CASE("the environment sets flags; the command line takes precedence") {
  const Variable batch_size("LOCKSTEP_FLAG_BATCH_SIZE", "32");
  const Variable epochs("LOCKSTEP_FLAG_EPOCHS", "7");
  const Variable quiet("LOCKSTEP_FLAG_QUIET", "1");
  Commands commands;
  commands.parse({"train", "--epochs", "3"});
  CHECK(commands.epochs == 3);
  CHECK(commands.batch_size == 32);
  CHECK(commands.quiet);
  CHECK(commands.lr == .2);
}

TEST_CASE("an error in the environment names the variable") {
  {
    const Variable epochs("LOCKSTEP_FLAG_EPOCHS", "many");
    CHECK(refusal({"train"}) ==
          std::string("LOCKSTEP_FLAG_EPOCHS is not a whole number: 'many'") + kSeeTrain);
    CHECK(refusal({"train", "--epochs", "few"}) ==
          std::string("--epochs is not a whole number: 'few'") + kSeeTrain);
    CHECK(refusal({"train", "--epochs", "3"}) == "accepted");
    CHECK(refusal({"data", "verify"}) == "accepted");  // it is not a flag of this command
  }
  const Variable quiet("LOCKSTEP_FLAG_QUIET", "maybe");
  CHECK(refusal({"train"}) ==
        std::string("LOCKSTEP_FLAG_QUIET must be 1, 0, true or false, got 'maybe'") + kSeeTrain);
}

TEST_CASE("0 and false switch a flag off") {
  for (const char* value : {"0", "false"}) {
    const Variable quiet("LOCKSTEP_FLAG_QUIET", value);
    Commands commands;
    commands.parse({"train"});
    CHECK_FALSE(commands.quiet);
  }
}

TEST_CASE("--help takes precedence over errors") {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"train", "--batch-size", "0", "--help"},
                                             {"train", "--help", "--epoch"},
                                             {"train", "--quiet=", "--help"},
                                             {"train", "-h"}}) {
    Commands commands;
    CHECK_NOTHROW(refuse_empty_values(commands.app, words));
    CHECK_THROWS_AS(commands.parse(words), CLI::ParseError);
    CHECK(help_requested(commands.app));
  }
}

TEST_CASE("a command line that ends before its subcommand") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{}, {"data"}}) {
    Commands commands;
    CHECK_THROWS_AS(commands.parse(words), CLI::ParseError);
    CHECK(ends_before_subcommand(commands.app));
  }
  Commands commands;
  CHECK_THROWS_AS(commands.parse({"dta"}), CLI::ParseError);
  CHECK_FALSE(ends_before_subcommand(commands.app));
}

TEST_CASE("the help of a command") {
  Commands commands;
  CHECK_THROWS_AS(commands.parse({"train", "--help"}), CLI::CallForHelp);
  CHECK(commands.app.help() ==
        "Train a model\n"
        "\n"
        "Usage: lockstep train [FLAGS]\n"
        "\n"
        "Flags:\n"
        "      --epochs N      Passes over the data (default 10)\n"
        "      --batch-size N  Rows (default 256)\n"
        "      --seed N        First random number (default 0)\n"
        "      --lr X          Learning rate (default 0.2)\n"
        "      --metrics FILE  File of results\n"
        "      --sync parameterwise|bucketed|overlapped\n"
        "                      When gradients are summed (default bucketed)\n"
        "      --quiet         Say less\n"
        "  -h, --help          Show this help\n"
        "      --color WHEN    Colours\n");
}

TEST_CASE("texts are told from commands that compute") {
  const auto asks = [](std::vector<const char*> words) {
    words.insert(words.begin(), "lockstep");
    return asks_for_text(static_cast<int>(words.size()), words.data());
  };
  CHECK(asks({"--help"}));
  CHECK(asks({"train", "--epochs", "2", "-h"}));
  CHECK(asks({"-V"}));
  CHECK(asks({"help", "train"}));
  CHECK(asks({"completion", "bash"}));
  CHECK(asks({"man"}));
  CHECK_FALSE(asks({}));
  CHECK_FALSE(asks({"train"}));
  CHECK_FALSE(asks({"plot", "man"}));
  CHECK_FALSE(asks({"launch", "-n", "2", "--", "train", "--help"}));
}
