// How `lockstep launch` ends when one of its processes fails.
#include <sched.h>
#include <signal.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/tests/app/launch/script.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// The only folder that the launcher has kept.
std::filesystem::path kept_folder(const Script& script) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(script.temporary()))
    found.push_back(entry.path());
  REQUIRE(found.size() == 1);
  return found.front();
}

// All write their number and wait for all; then the one of rank $2 goes on alone.
std::string only_second_argument() {
  return "echo $$ > \"$1/pid.$RANK\"\n[ $RANK = $2 ] || exec sleep 1000\n" + await_file("pid.0") +
         await_file("pid.1") + await_file("pid.2");
}

}  // namespace

TEST_CASE("a failed process ends the others, and launch ends with its code") {
  const int rank = GENERATE(0, 1, 2);
  const auto number = std::to_string(rank);
  const Script script(only_second_argument() + "echo \"last words\tof $RANK\"; exit 7\n");
  const auto result = run_ending(7, script.launch(3, {}, {number}));
  CHECK_THAT(result.err, ContainsSubstring("lockstep: error: process " + number + " ended with code 7\n") &&
                             ContainsSubstring("hint: the output of processes 1 to 2 is in " +
                                               script.temporary().string()));
  if (rank == 0) {
    CHECK(result.out == "last words\tof 0\n");
    CHECK_THAT(result.err, !ContainsSubstring("last words"));
  } else {
    CHECK(result.out.empty());
    CHECK_THAT(result.err, ContainsSubstring("process " + number + ": last words of " + number + "\n"));
    CHECK(read_file(kept_folder(script) / ("process-" + number + ".log")) ==
          "last words\tof " + number + "\n");
  }
  for (const auto* name : {"pid.0", "pid.1", "pid.2"}) CHECK_FALSE(is_running(script.number_in(name)));
}

TEST_CASE("a process that a signal ends is a lost peer") {
  const Script script(only_second_argument() + "kill -KILL $$\n");
  const auto result = run_ending(10, script.launch(3, {}, {"2"}));
  CHECK_THAT(result.err, ContainsSubstring("error: process 2 was ended by signal 9 (Killed)\n"));
  for (const auto* name : {"pid.0", "pid.1"}) CHECK_FALSE(is_running(script.number_in(name)));
}

TEST_CASE("the failed process's last twenty lines are shown") {
  const Script script(
      "[ $RANK = 1 ] || exec sleep 1000\n"
      "i=1; while [ $i -le 30 ]; do printf 'line %s\\033\\n' $i; i=$((i + 1)); done >&2\n"
      "printf 'no line break'; exit 3\n");
  const auto result = run_ending(3, script.launch(2));
  const auto all = lines(result.err);
  REQUIRE(all.size() == 22);
  for (size_t i = 0; i < 19; ++i) CHECK(all[i] == "process 1: line " + std::to_string(12 + i) + "?");
  CHECK(all[19] == "process 1: no line break");
  CHECK(all[20] == "lockstep: error: process 1 ended with code 3");
  CHECK(all[21] == "hint: the output of process 1 is in " + kept_folder(script).string());
  CHECK(lines(read_file(kept_folder(script) / "process-1.log")).size() == 31);
}

TEST_CASE("one process alone fails with its code, and keeps nothing") {
  const Script script("exit 42\n");
  const auto result = run_ending(42, script.launch(1));
  CHECK(result.err == "lockstep: error: process 0 ended with code 42\n");
  CHECK(std::filesystem::is_empty(script.temporary()));
}

TEST_CASE("an error of the subcommand's usage is shown, and ends launch with code 2") {
  auto process = program({"launch", "-n", "2", "--max-restarts", "5", "--", "train", "--epoch", "3"});
  const TempFolder temporary;
  process.environment["TMPDIR"] = temporary.path().string();
  const auto result = run_ending(2, process);
  const auto told = lines(result.err);  // once, although both processes have this error
  REQUIRE(told.size() == 3);
  CHECK(told[0] == "lockstep: error: unknown flag '--epoch' for 'lockstep train'");
  CHECK_THAT(told[1], ContainsSubstring("did you mean '--epochs'?"));
  CHECK(told[2] == "lockstep: error: process 0 ended with code 2");
  CHECK(std::filesystem::is_empty(temporary.path()));
}

TEST_CASE("a rank that is given beside the launcher's is refused") {
  for (const Words& words : {Words{"--rank", "0"}, {"--world-size", "2"}}) {
    const auto result = run_ending(
        2,
        program(Words{"launch", "-n", "2", "--", "train", "--dry-run", "--master", "127.0.0.1:1"} + words));
    CHECK_THAT(result.err,
               ContainsSubstring("the " + std::string(words[0] == "--rank" ? "rank" : "world size") +
                                 " is given, but lockstep launch has started this process and gives it\n"
                                 "hint: leave out --rank, --world-size and --master"));
  }
}

TEST_CASE("SIGPIPE of process 0 is a failure like others while somebody reads") {
  const Script script("[ $RANK = 0 ] || exec sleep 1000\nkill -PIPE $$\n");
  const auto result = run_ending(10, script.launch(2));
  CHECK_THAT(result.err, ContainsSubstring("process 0 was ended by signal 13"));
}

// As in `lockstep launch -n 2 -- train | head -20`.
TEST_CASE(
    "a training under launch whose reader leaves ends by SIGPIPE, without a word and without a restart") {
  auto process = program({"launch", "-n", "2", "--max-restarts", "3", "--", "train", "--data", "synthetic",
                          "--limit-train", "640", "--epochs", "1000000", "--log-every", "1"});
  const TempFolder temporary;
  process.environment["TMPDIR"] = temporary.path().string();
  process.command = Words{"/bin/bash", "-c", "\"$@\" | head -20 > /dev/null; exit ${PIPESTATUS[0]}", "bash"} +
                    process.command;
  const auto result = run_ending(128 + SIGPIPE, process);
  CHECK(result.err.empty());
  CHECK(std::filesystem::is_empty(temporary.path()));
}

TEST_CASE("where programs end with code 2 their output is kept") {
  const Script script("echo \"reason of $RANK\"; echo > \"$1/said.$RANK\"\n" + await_file("said.1") +
                      "exit 2\n");
  const auto result = run_ending(2, script.launch(2));
  CHECK(read_file(kept_folder(script) / "process-1.log") == "reason of 1\n");
}

TEST_CASE("many processes on few cores are told") {
  cpu_set_t allowed, one;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &one);
  }
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  const Script script("exit 0\n");
  const auto few = run_process(script.launch(4)), many = run_process(script.launch(5));
  REQUIRE(::sched_setaffinity(0, sizeof allowed, &allowed) == 0);
  CHECK(few.err == alone_warning(4) + "\n");
  CHECK(many.exit_code == 0);
  CHECK(lines(many.err) == Words{"lockstep: warning: 5 processes share 1 core", alone_warning(5)});
}

TEST_CASE("after a failure all processes start again, with a count and a fresh store") {
  const Script script(
      "echo \"$TORCHELASTIC_RESTART_COUNT $MASTER_PORT $TORCHELASTIC_RUN_ID\" >> \"$1/starts.$RANK\"\n"
      "[ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0\n"
      "[ $RANK = 1 ] || exec sleep 1000\n" +
      await_file("starts.0") + await_file("starts.2") + "echo oh; exit 5\n");
  const auto result = run_ending(0, script.launch(3, {"--max-restarts", "2"}));
  const auto warning = "lockstep: warning: process 1 ended with code 5; 3 processes start again (restart ";
  CHECK(lines(result.err) == Words{"process 1: oh", std::string(warning) + "1 of 2)", "process 1: oh",
                                   std::string(warning) + "2 of 2)", alone_warning(3)});
  CHECK(std::filesystem::is_empty(script.temporary()));
  const auto starts = lines(read_file(script.file("starts.1")));
  REQUIRE(starts.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(starts[i].substr(0, 2) == std::to_string(i) + " ");
    CHECK(starts[i].substr(starts[i].rfind(' ')) == starts[0].substr(starts[0].rfind(' ')));  // the run
  }
}

TEST_CASE("the last restart's failure counts") {
  const Script script("echo x >> \"$1/starts.$RANK\"; exit $((5 + TORCHELASTIC_RESTART_COUNT))\n");
  const auto result = run_ending(6, script.launch(1, {"--max-restarts", "1"}));
  CHECK(lines(read_file(script.file("starts.0"))).size() == 2);
}

TEST_CASE("an error of usage is not tried again") {
  const Script script("echo x >> \"$1/starts.$RANK\"; exit 2\n");
  CHECK(run_process(script.launch(1, {"--max-restarts", "3"})).exit_code == 2);
  CHECK(lines(read_file(script.file("starts.0"))).size() == 1);
}

// The scripts become `sleep`: a launcher's death reaches the processes it has started, not their own.
TEST_CASE("no process outlives a launcher that is killed") {
  const Script script("echo $$ > \"$1/pid.$RANK\"; exec sleep 1000\n");
  auto process = script.launch(3);
  bool started = false;
  process.on_start = [&](pid_t launcher) {
    started = wait_until([&] { return script.has_all("pid", 3) && script.number_in("pid.2") > 0; });
    ::kill(launcher, SIGKILL);
  };
  CHECK(run_process(process).signal == SIGKILL);
  REQUIRE(started);
  for (const auto* name : {"pid.0", "pid.1", "pid.2"}) {
    CHECK(wait_until([&] { return !is_running(script.number_in(name)); }));
  }
}
