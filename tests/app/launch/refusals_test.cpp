// Launches that are refused: nothing is started.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/app/launch/script.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// "error | hint" of a launch that must end with code 2 and start nothing.
std::string launch_refusal(const Words& words, std::map<std::string, std::string> environment = {}) {
  const auto all = lines(refusal(program(Words{"launch"} + words, std::move(environment)), 2));
  REQUIRE(all.size() == 2);
  return all[0].substr(std::string("lockstep: error: ").size()) + " | " +
         all[1].substr(std::string("hint: ").size());
}

}  // namespace

TEST_CASE("a number of processes that is none, a launch of nothing, or of what is unknown") {
  struct Case {
    Words words;
    std::vector<std::string> says;  // of "error | hint"
  };
  const std::string nothing = "nothing to launch | write what the processes run after --: 'lockstep launch ";
  const Case cases[] = {
      {{"-n", "0", "--", "version"},
       {"--processes must be at least 1, got 0 | see 'lockstep launch --help'"}},
      {{"-n", "-2", "--", "version"}, {"--processes must be at least 1, got -2"}},
      {{"-n", "1025", "--", "version"}, {"--processes must be at most 1,024, got 1025"}},
      {{"-n", "2.5", "--", "version"}, {"--processes is not a whole number: '2.5'"}},
      {{"-n", "all", "--", "version"}, {"--processes must be a number or auto, got 'all'"}},
      {{"-n", "aut", "--", "version"}, {"got 'aut' | did you mean 'auto'? see 'lockstep launch --help'"}},
      {{"--", "version"}, {"--processes is required | add --processes N|auto"}},
      {{"-n", "2", "--max-restarts", "-1", "--", "version"}, {"--max-restarts must be at least 0, got -1"}},
      {{"-n", "2"}, {nothing}},
      {{"-n", "2", "--"}, {nothing}},
      {{"-n", "2", "--", "trian"}, {"unknown subcommand 'trian' after -- | did you mean 'train'?"}},
      {{"-n", "2", "--", ""},
       {"unknown subcommand '' after -- | name a subcommand of lockstep, or a program by a path"}},
      {{"-n", "2", "train", "--epochs", "3"},
       {"unexpected argument 'train' for 'lockstep launch' | write -- before what is launched: ",
        "'lockstep launch -n 2 -- train'"}},
      {{"-n", "2", "--max-restart", "3", "--", "train"},
       {"unknown flag '--max-restart'", "did you mean '--max-restarts'?"}},
      {{"-n", "2", "--", "launch", "-n", "2", "--", "train"},
       {"launch cannot launch itself | name what its processes run"}}};
  for (const auto& [words, says] : cases) {
    const auto told = launch_refusal(words);
    for (const auto& part : says) CHECK_THAT(told, ContainsSubstring(part));
  }
}

TEST_CASE("programs that cannot be run") {
  const TempFolder folder;
  const auto path = (folder / "program").string();
  const auto check = [](const std::string& program, const std::string& says) {
    CHECK_THAT(launch_refusal({"-n", "2", "--", program}), ContainsSubstring(says));
  };
  check(path, "no program '" + path + "': No such file or directory | check its path");
  check(folder.path().string(), "'" + folder.path().string() + "' is a folder, not a program | name a file");
  write_file(path, "neither a program nor a script\n");
  check(path, "cannot run '" + path + "': Permission denied | make it executable with chmod +x");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  check(path, "cannot start '" + path + "': Exec format error | it must be a program");
}

TEST_CASE("a launch inside a launch") {
  CHECK_THAT(launch_refusal({"-n", "2", "--", "version"}, {{"RANK", "1"}}),
             ContainsSubstring("launch was started by a launcher: RANK is '1' | start it once"));
  const Script script("exec " LOCKSTEP_PROGRAM " launch -n 1 -- version\n");
  const auto result = run_ending(2, script.launch(1));
  CHECK_THAT(result.err, ContainsSubstring("RANK is '0'"));
}

TEST_CASE("a folder for the output that cannot be made") {
  const auto result =
      run_ending(7, program({"launch", "-n", "2", "--", "version"}, {{"TMPDIR", "/nonexistent/folder"}}));
  CHECK(result.out.empty());
  CHECK_THAT(result.err,
             ContainsSubstring("no folder for the processes' output") && ContainsSubstring("TMPDIR"));
}

TEST_CASE("the help of launch shows where the command stands") {
  const auto result = run_ending(0, program({"launch", "--help"}));
  CHECK_THAT(result.out, ContainsSubstring("Usage: lockstep launch [FLAGS] -- COMMAND...\n") &&
                             ContainsSubstring("-n, --processes N|auto"));
}
