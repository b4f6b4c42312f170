// Launches that are refused: nothing is started.
#include <lockstep/tests/catch.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

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

TEST_CASE("a number of processes that is none") {
  const std::string see = " | see 'lockstep launch --help'";
  CHECK(launch_refusal({"-n", "0", "--", "version"}) == "--processes must be at least 1, got 0" + see);
  CHECK(launch_refusal({"-n", "-2", "--", "version"}) == "--processes must be at least 1, got -2" + see);
  CHECK(launch_refusal({"-n", "1025", "--", "version"}) ==
        "--processes must be at most 1,024, got 1025" + see);
  CHECK(launch_refusal({"-n", "2.5", "--", "version"}) == "--processes is not a whole number: '2.5'" + see);
  CHECK(launch_refusal({"-n", "all", "--", "version"}) ==
        "--processes must be a number or auto, got 'all'" + see);
  CHECK(
      launch_refusal({"-n", "aut", "--", "version"}) ==
      "--processes must be a number or auto, got 'aut' | did you mean 'auto'? see 'lockstep launch --help'");
  CHECK(launch_refusal({"--", "version"}) ==
        "--processes is required | add --processes N|auto; see 'lockstep launch --help'");
  CHECK_THAT(launch_refusal({"-n", "2", "--max-restarts", "-1", "--", "version"}),
             ContainsSubstring("--max-restarts must be at least 0, got -1"));
}

TEST_CASE("a launch of nothing, or of what is unknown") {
  const std::string nothing =
      "nothing to launch | write what the processes run after --: 'lockstep launch -n 2 -- train'";
  CHECK(launch_refusal({"-n", "2"}) == nothing);
  CHECK(launch_refusal({"-n", "2", "--"}) == nothing);
  CHECK(launch_refusal({"-n", "2", "--", "trian"}) ==
        "unknown subcommand 'trian' after -- | did you mean 'train'?");
  CHECK(
      launch_refusal({"-n", "2", "--", ""}) ==
      "unknown subcommand '' after -- | name a subcommand of lockstep, or a program by a path with a slash");
  CHECK(launch_refusal({"-n", "2", "train", "--epochs", "3"}) ==
        "unexpected argument 'train' for 'lockstep launch' | write -- before what is launched: 'lockstep "
        "launch "
        "-n 2 -- train'");
  CHECK_THAT(launch_refusal({"-n", "2", "--max-restart", "3", "--", "train"}),
             ContainsSubstring("unknown flag '--max-restart'") &&
                 ContainsSubstring("did you mean '--max-restarts'?"));
}

TEST_CASE("programs that cannot be run") {
  const TempFolder folder;
  const auto path = (folder / "program").string();
  CHECK(launch_refusal({"-n", "2", "--", path}) ==
        "no program '" + path + "': No such file or directory | check its path");
  CHECK(launch_refusal({"-n", "2", "--", folder.path().string()}) ==
        "'" + folder.path().string() + "' is a folder, not a program | name a file in it");
  write_file(path, "neither a program nor a script\n");
  CHECK(launch_refusal({"-n", "2", "--", path}) ==
        "cannot run '" + path + "': Permission denied | make it executable with chmod +x");
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  CHECK_THAT(launch_refusal({"-n", "2", "--", path}),
             ContainsSubstring("cannot start '" + path + "': Exec format error | it must be a program"));
}

TEST_CASE("a launch inside a launch") {
  CHECK(launch_refusal({"-n", "2", "--", "launch", "-n", "2", "--", "train"}) ==
        "launch cannot launch itself | name what its processes run, such as train");
  CHECK_THAT(launch_refusal({"-n", "2", "--", "version"}, {{"RANK", "1"}}),
             ContainsSubstring("launch was started by a launcher: RANK is '1' | start it once"));
  const Script script("exec " LOCKSTEP_PROGRAM " launch -n 1 -- version\n");
  const auto result = run_process(script.launch(1));
  CHECK(result.exit_code == 2);
  CHECK_THAT(result.err, ContainsSubstring("RANK is '0'"));
}

TEST_CASE("a folder for the output that cannot be made") {
  const auto result =
      run_process(program({"launch", "-n", "2", "--", "version"}, {{"TMPDIR", "/nonexistent/folder"}}));
  CHECK(result.exit_code == 7);
  CHECK(result.out.empty());
  CHECK_THAT(result.err,
             ContainsSubstring("no folder for the processes' output") && ContainsSubstring("TMPDIR"));
}

TEST_CASE("the help of launch shows where the command stands") {
  const auto result = run_process(program({"launch", "--help"}));
  CHECK(result.exit_code == 0);
  CHECK_THAT(result.out, ContainsSubstring("Usage: lockstep launch [FLAGS] -- COMMAND...\n") &&
                             ContainsSubstring("-n, --processes N|auto"));
}
