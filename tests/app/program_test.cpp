// The built program: exit codes, standard output and standard error.
#include <lockstep/tests/catch.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include <lockstep/tests/app/train_process.h>
#include <lockstep/tests/skip.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

// Checks for a usage error: code 2, no standard output, exactly these two lines on standard error.
void check_refused(const Process& process, const std::string& error, const std::string& hint) {
  const auto result = run_process(process);
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK(result.err == "lockstep: error: " + error + "\nhint: " + hint + "\n");
}

}  // namespace

TEST_CASE("without a subcommand the help goes to standard error, with exit code 2") {
  const auto result = run_process(program({}));
  CHECK(result.exit_code == 2);
  CHECK(result.out.empty());
  CHECK_THAT(result.err,
             ContainsSubstring("Usage: lockstep SUBCOMMAND [FLAGS]") && ContainsSubstring("devices"));
  CHECK(run_process(program({"demo"})).exit_code == 2);
}

TEST_CASE("help and version go to standard output") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--help"}, {"devices", "-h"}, {"help"}, {"help", "bench", "step"}}) {
    const auto result = run_process(program(words));
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK_THAT(result.out, ContainsSubstring("Usage: lockstep"));
  }
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--version"}, {"-V"}, {"version"}, {"devices", "--version"}}) {
    const auto result = run_process(program(words));
    CHECK(result.exit_code == 0);
    CHECK(result.err.empty());
    CHECK_THAT(result.out,
               Catch::Matchers::Matches(
                   "lockstep [0-9]+\\.[0-9]+\\.[0-9]+, commit [0-9a-z.-]+\n"
                   "LibTorch 2\\.[0-9]+\\.[0-9]+.*, .*CUDA.*\n"
                   "compiler (g|clang)\\+\\+ [0-9]+\\..*\n"
                   "CPU (avx512, )?(avx2, )?portable; lockstep's kernels [a-z0-9]+, torch's .+\n"));
  }
}

TEST_CASE("lockstep help SUBCOMMAND is its --help") {
  CHECK(run_process(program({"help"})).out == run_process(program({"--help"})).out);
  CHECK(run_process(program({"help", "train"})).out == run_process(program({"train", "--help"})).out);
  CHECK(run_process(program({"help", "bench", "step"})).out ==
        run_process(program({"bench", "step", "--help"})).out);
  CHECK_THAT(run_process(program({"help", "--help"})).out,
             StartsWith("Show the help of a subcommand\n\nUsage: lockstep help [SUBCOMMAND...] [FLAGS]\n"));
  check_refused(program({"help", "trian"}), "unknown subcommand 'trian'",
                "did you mean 'train'? see 'lockstep --help'");
  check_refused(program({"help", "bench", "setp"}), "unknown subcommand 'setp' of 'lockstep bench'",
                "did you mean 'step'? see 'lockstep bench --help'");
  check_refused(program({"help", "bench", "nonsense"}), "unknown subcommand 'nonsense' of 'lockstep bench'",
                "see 'lockstep bench --help'");
  check_refused(program({"help", "devices", "fast"}), "unexpected argument 'fast' for 'lockstep devices'",
                "see 'lockstep devices --help'");
}

TEST_CASE("--json prints devices and recipes as JSON") {
  const auto devices = nlohmann::json::parse(run_process(program({"devices", "--json"})).out);
  CHECK(devices.at("cpu").at("cores") >= 1);
  CHECK(devices.at("cpu").at("memory_bytes") > devices.at("cpu").at("free_bytes"));
  CHECK(devices.at("gpus").is_array());
  CHECK(devices.at("versions").contains("LibTorch"));
  const auto recipes = nlohmann::json::parse(run_process(program({"recipes", "--json"})).out).at("recipes");
  REQUIRE(recipes.size() == 5);
  CHECK(recipes.at(0).at("name") == "lenet-scratch");
  CHECK(recipes.at(0).at("lr") == .2);
  CHECK(recipes.at(3).at("reported").is_null());
  CHECK(recipes.at(4).at("schedule") == "cosine");
  // The variable of bench's --json FILE does not matter here.
  CHECK(run_process(program({"recipes"}, {{"LOCKSTEP_FLAG_JSON", "rows.json"}})).exit_code == 0);
}

// libgomp prints its settings. Programs with a sanitizer keep the defaults.
TEST_CASE("OpenMP's threads spin briefly, unless the user says otherwise") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP_CASE("a program with a sanitizer leaves OpenMP as it is");
#endif
  const auto spin_count = [](std::map<std::string, std::string> environment, const char* word = "recipes") {
    environment["OMP_DISPLAY_ENV"] = "verbose";
    const auto result = run_process(program({word}, std::move(environment)));
    CHECK(result.exit_code == 0);
    CHECK_THAT(result.out, StartsWith("lenet-scratch") || StartsWith("lockstep "));
    std::smatch found;
    const std::regex setting("GOMP_SPINCOUNT = '([0-9]+)'");
    REQUIRE(std::regex_search(result.err, found, setting));
    return found[1].str();
  };
  CHECK(spin_count({}) == "1000");
  CHECK(spin_count({{"GOMP_SPINCOUNT", "1234"}}) == "1234");
  CHECK(std::stoll(spin_count({{"OMP_WAIT_POLICY", "active"}})) > 1'000'000);
  CHECK(std::stoll(spin_count({}, "--version")) > 1000);  // a text: the program is started once
}

TEST_CASE("lockstep devices") {
  const auto result = run_process(program({"devices"}));
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
  CHECK_THAT(result.out,
             ContainsSubstring("cpux2") && ContainsSubstring("LibTorch") && ContainsSubstring("GiB memory"));
  CHECK_THAT(result.out, !ContainsSubstring("\x1b"));
}

TEST_CASE("lockstep doctor checks this machine, and its exit code says whether a check failed") {
  const TempFolder folder;
  std::ofstream(folder / "not-a-folder") << "x";
  const auto run = [&](const Words& words) {
    return run_process(program(Words{"doctor", "--output", folder.path().string()} + words));
  };
  const auto good = run({"--data", "synthetic", "--json"});
  const auto found = nlohmann::json::parse(good.out);
  CHECK(found.at("checks").size() >= 15);
  CHECK(good.exit_code == (found.at("ok") == true ? 0 : 1));
  for (const auto& check : found.at("checks")) {
    if (check.at("name") == "data" || check.at("name") == "run folder") CHECK(check.at("health") != "fail");
    if (check.at("name") == "data") CHECK(check.at("text") == "synthetic: no files");
  }
  const auto bad = run({"--data", (folder / "not-a-folder").string()});
  CHECK(bad.exit_code == 1);
  CHECK_THAT(bad.out, ContainsSubstring("\nfail  data           "));
  CHECK_THAT(bad.err, StartsWith("lockstep: error: ") && ContainsSubstring(" checks failed: ") &&
                          ContainsSubstring("data"));
  CHECK(std::filesystem::is_regular_file(folder / "not-a-folder"));
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("lockstep doctor reads the variables and limits of its own process") {
  const auto health_of = [](Process process) {
    const auto found = nlohmann::json::parse(run_process(process).out);
    std::map<std::string, std::string> health;
    for (const auto& check : found.at("checks")) {
      health[check.at("name")] = check.at("health");
    }
    return health;
  };
  const Words words = {"doctor", "--data", "synthetic", "--json"};
  auto limited = program(words);
  limited.command = Words{"/bin/sh", "-c", "ulimit -n 100; exec \"$@\"", "sh"} + limited.command;
  CHECK(health_of(limited).at("open files") == "fail");
  const auto health = health_of(
      program(words, {{"OMP_PROC_BIND", "close"}, {"RANK", "0"}, {"LOCKSTEP_CPU_CAPABILITY", "nonsense"}}));
  CHECK(health.at("openmp") == "warn");
  CHECK(health.at("launcher") == "fail");
  CHECK(health.at("kernels") == "fail");
  const auto good = health_of(program(words));
  CHECK(good.at("openmp") == "ok");
  CHECK(good.at("launcher") == "ok");
  CHECK(good.at("kernels") != "fail");
}

TEST_CASE("misspelt words") {
  check_refused(program({"devces"}), "unknown subcommand 'devces'",
                "did you mean 'devices'? see 'lockstep --help'");
  check_refused(program({"devices", "--colr", "never"}), "unknown flag '--colr' for 'lockstep devices'",
                "did you mean '--color'? see 'lockstep devices --help'");
  check_refused(program({"devices", "--color", "nevr"}), "--color must be auto, always or never, got 'nevr'",
                "did you mean 'never'? see 'lockstep devices --help'");
  check_refused(program({"devices", "--color"}), "--color needs a value", "see 'lockstep devices --help'");
  check_refused(program({"--color", "auto", "devices", "--color", "never"}),
                "--color is given 2 times: 'auto' and 'never'", "keep one of them");
  check_refused(program({"devices"}, {{"LOCKSTEP_FLAG_COLOR", "blue"}}),
                "LOCKSTEP_FLAG_COLOR must be auto, always or never, got 'blue'",
                "see 'lockstep devices --help'");
  check_refused(program({"train", "--model", "resnet"}), "--model must be lenet or resnet18, got 'resnet'",
                "did you mean 'resnet18'? see 'lockstep train --help'");
  check_refused(program({"train", "--recipe", "resnet18"}),
                "--recipe must be lenet-scratch, resnet18-pytorch, resnet18-gluon, resnet18-fleet or "
                "resnet18-warmup, got 'resnet18'",
                "did you mean resnet18-pytorch, resnet18-gluon, resnet18-fleet or resnet18-warmup? 'lockstep "
                "recipes' describes all of them; see 'lockstep train --help'");
  check_refused(program({"train", "--recipe", "xyzzy"}),
                "--recipe must be lenet-scratch, resnet18-pytorch, resnet18-gluon, resnet18-fleet or "
                "resnet18-warmup, got 'xyzzy'",
                "'lockstep recipes' describes all of them; see 'lockstep train --help'");
}

TEST_CASE("a flag of several other commands") {
  const auto result = run_process(program({"devices", "--batch-size", "3"}));
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring(
                             "unknown flag '--batch-size' for 'lockstep devices'\nhint: it is a flag of ") &&
                             ContainsSubstring(" other commands, such as 'lockstep train'; see 'lockstep "
                                               "devices --help'\n"));
  CHECK_THAT(run_process(program({"version", "--json"})).err,
             ContainsSubstring("unknown flag '--json' for 'lockstep version'\nhint: it is a flag of ") &&
                 ContainsSubstring(" other commands, such as "));
}

TEST_CASE("a flag with = and an empty value is refused before anything is run") {
  check_refused(program({"devices", "--json="}), "--json must be 1, 0, true or false, got ''",
                "see 'lockstep devices --help'");
}

TEST_CASE("a variable that sets no flag gives a warning") {
  const auto result = run_process(program({"devices"}, {{"LOCKSTEP_FLAG_COLR", "never"}}));
  CHECK(result.exit_code == 0);
  CHECK(result.err ==
        "lockstep: warning: the variable 'LOCKSTEP_FLAG_COLR' sets no flag and is ignored; did you mean "
        "'LOCKSTEP_FLAG_COLOR'?\n");
  CHECK(
      run_process(program({"devices"}, {{"LOCKSTEP_FLAG_EPOCHS", "3"}})).err.empty());  // of another command
}

TEST_CASE("results that cannot be written are an error") {
  auto process = program({"devices"});
  process.stdout_path = "/dev/full";
  const auto result = run_process(process);
  CHECK(result.exit_code == 7);
  CHECK(result.err ==
        "lockstep: error: cannot write to standard output: No space left on device\n"
        "hint: free some space, or choose another disk\n");
}

TEST_CASE("colours appear only on a terminal, unless --color says otherwise") {
  const auto has_colour = [](std::vector<std::string> words, std::map<std::string, std::string> environment,
                             bool terminal) {
    auto process = program(std::move(words), std::move(environment));
    process.on_terminal = terminal;
    const auto result = run_process(process);
    CHECK(result.exit_code == 2);
    CHECK_THAT(result.out + result.err, ContainsSubstring("error:") && ContainsSubstring("unknown flag"));
    return (result.out + result.err).find('\x1b') != std::string::npos;
  };
  const std::map<std::string, std::string> xterm{{"TERM", "xterm"}};
  CHECK(has_colour({"devices", "--x"}, xterm, true));
  CHECK_FALSE(has_colour({"devices", "--x"}, xterm, false));
  CHECK_FALSE(has_colour({"devices", "--x"}, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}, true));
  CHECK_FALSE(has_colour({"devices", "--x"}, {{"TERM", "dumb"}}, true));
  CHECK_FALSE(has_colour({"devices", "--x", "--color", "never"}, xterm, true));
  CHECK(has_colour({"devices", "--x", "--color", "always"}, {{"NO_COLOR", "1"}}, false));
  CHECK_FALSE(has_colour({"devices", "--x"}, {{"TERM", "xterm"}, {"LOCKSTEP_FLAG_COLOR", "never"}}, true));
}

TEST_CASE("the exit code tells even where standard error is full") {
  const auto result = run_process({.command = {"/bin/sh", "-c", LOCKSTEP_PROGRAM " devces 2>/dev/full"}});
  CHECK(result.exit_code == 2);
  CHECK(run_process({.command = {"/bin/sh", "-c", LOCKSTEP_PROGRAM " devces 2>&-"}}).exit_code == 2);
}

TEST_CASE("a reader that leaves early ends the program quietly") {
  const auto result = run_process({.command = {"/bin/sh", "-c", LOCKSTEP_PROGRAM " --help | head -n 1"}});
  CHECK(result.exit_code == 0);
  CHECK(result.err.empty());
}

#ifndef __SANITIZE_ADDRESS__  // it needs terabytes of addresses itself
TEST_CASE("an allocation that fails") {
  // 1.7 TB of images with a limit of 200 GB of addresses: fails on any machine, before any memory is used.
  const auto result = run_process({.command = {"/bin/sh", "-c",
                                               "ulimit -v 200000000; exec " LOCKSTEP_PROGRAM
                                               " train --data synthetic --limit-train 2147483648"}});
  CHECK(result.exit_code == 8);
  CHECK(result.out.empty());
  CHECK_THAT(result.err, StartsWith("lockstep: error: out of memory: you tried to allocate 1"));
  CHECK_THAT(result.err, ContainsSubstring("\nhint: ") && ContainsSubstring("--batch-size"));
}
#endif

// Programs with a sanitizer start without lockstep's set-up of the process.
TEST_CASE("a current folder that has been removed is one error, and a text needs none") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  SKIP_CASE("a program with a sanitizer leaves the folder to oneMKL");
#endif
  const TempFolder folder;
  const auto nowhere = [&](const Words& words) {
    auto process = program(words);
    process.command = Words{"/bin/sh", "-c", R"(mkdir "$1" && cd "$1" && rmdir "$1" && shift && exec "$@")",
                            "sh", (folder / "gone").string()} +
                      process.command;
    return process;
  };
  for (const Words& words : {Words{"devices"}, {"train", "--data", "synthetic", "--dry-run"}}) {
    check_refused(nowhere(words), "the current folder has been removed",
                  "change to another folder, or make it again");
  }
  CHECK(run_process(nowhere({"--version"})).out == run_process(program({"--version"})).out);
  CHECK(run_process(nowhere({"train", "--help"})).out == run_process(program({"train", "--help"})).out);
}
