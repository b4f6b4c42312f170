// Signals to `lockstep launch`.
#include <signal.h>

#include <lockstep/tests/catch.h>

#include <filesystem>
#include <functional>
#include <string>

#include <lockstep/tests/app/launch/script.h>

using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Notes each signal in a file, and then does `then`.
std::string on_signal(const std::string& then) {
  return "for name in INT TERM HUP; do\n"
         "  trap \"echo $name >> '$1/noted.$RANK'; " +
         then +
         "\" $name\n"
         "done\n"
         "while :; do sleep 1000 & echo $$ > \"$1/pid.$RANK\"; wait $!; done\n";
}

bool ready(const Script& script) {
  return script.has_all("pid", 3) && script.number_in("pid.0") > 0 && script.number_in("pid.1") > 0 &&
         script.number_in("pid.2") > 0;
}

// Launches three processes of the script, and calls `then` with the launcher when all are ready.
ProcessResult signalled(const Script& script, Process process, const std::function<void(pid_t)>& then) {
  process.on_start = [&](pid_t launcher) {
    CHECK(wait_until([&] { return ready(script); }));
    then(launcher);
  };
  return run_process(process);
}

const auto kTerminate = [](pid_t launcher) { ::kill(launcher, SIGTERM); };

}  // namespace

TEST_CASE("a signal is passed on, and launch waits for the processes and ends with its code") {
  const int signal = GENERATE(SIGINT, SIGTERM, SIGHUP);
  const Script script(on_signal("exit 0"));
  const auto result = signalled(script, script.launch(3), [&](pid_t launcher) { ::kill(launcher, signal); });
  CHECK(result.exit_code == 128 + signal);
  CHECK(result.out.empty());
  const std::string name = signal == SIGINT ? "INT" : signal == SIGTERM ? "TERM" : "HUP";
  const std::string called = signal == SIGINT ? "Ctrl-C" : "SIG" + name;
  const auto answer =
      "lockstep: SIG" + name + " passed on, waiting for the processes; a second one kills them\n";
  CHECK_THAT(result.err, ContainsSubstring(answer) &&
                             ContainsSubstring("error: stopped by " + called + " with its 3 processes\n"));
  CHECK(answer.size() <= 80);  // with its line break
  for (const auto* file : {"noted.0", "noted.1", "noted.2"})
    CHECK(read_file(script.file(file)) == name + "\n");
  CHECK(std::filesystem::is_empty(script.temporary()));
}

TEST_CASE("a signal that is passed on is not a failure, and nothing starts again") {
  const Script script("echo $$ > \"$1/pid.$RANK\"; exec sleep 1000\n");
  const auto result = signalled(script, script.launch(3, {"--max-restarts", "3"}), kTerminate);
  CHECK(result.exit_code == 143);
  CHECK_THAT(result.err, !ContainsSubstring("process 1") && !ContainsSubstring("restart"));
}

TEST_CASE("a process that fails after a signal is named, and its output is kept") {
  const Script script(on_signal("echo cannot save; [ $RANK = 1 ] && exit 7; exit 143"));
  const auto result = signalled(script, script.launch(3), kTerminate);
  CHECK(result.exit_code == 143);
  CHECK_THAT(
      result.err,
      ContainsSubstring("process 1: cannot save\n") &&
          ContainsSubstring("warning: process 1 ended with code 7; the output of processes 1 to 2 is in "));
  CHECK_FALSE(std::filesystem::is_empty(script.temporary()));
}

TEST_CASE("a second signal kills the processes") {
  const Script script(on_signal(":"));
  const auto result = signalled(script, script.launch(3), [&](pid_t launcher) {
    kTerminate(launcher);
    CHECK(wait_until([&] { return script.has_all("noted", 3); }));
    kTerminate(launcher);
  });
  CHECK(result.exit_code == 143);
  for (const auto* name : {"pid.0", "pid.1", "pid.2"}) CHECK_FALSE(is_running(script.number_in(name)));
}

// The kernel gives SIGHUP first of two signals that wait: had it been taken, launch would end with its code.
TEST_CASE("under nohup the end of the terminal is not passed on") {
  const Script script(on_signal("exit 0"));
  const auto command = "trap '' HUP; exec " LOCKSTEP_PROGRAM " launch -n 3 -- " + script.path() + " " +
                       script.files().string();
  const auto result = signalled(script, {.command = {"/bin/sh", "-c", command}}, [](pid_t launcher) {
    ::kill(launcher, SIGHUP);
    kTerminate(launcher);
  });
  CHECK(result.exit_code == 143);
  for (const auto* file : {"noted.0", "noted.1", "noted.2"}) CHECK(read_file(script.file(file)) == "TERM\n");
}
