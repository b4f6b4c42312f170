// Which process is to blame, and how the others are ended: with limits that a test need not wait for.
#include <signal.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <lockstep/app/launch/supervise.h>
#include <lockstep/tests/app/launch/waiting.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using lockstep::testing::is_running;
using lockstep::testing::TempFolder;
using lockstep::testing::wait_until;

namespace {

constexpr std::chrono::milliseconds kNever = std::chrono::hours(1);
constexpr std::chrono::milliseconds kAtOnce{0};

// Processes of sh, which run these texts; $1 is the folder.
std::vector<Child> shells(const std::vector<std::string>& texts, const TempFolder& folder,
                          const LaunchSignals& signals) {
  std::vector<Child> children;
  children.reserve(texts.size());
  for (const auto& text : texts) {
    const ChildPlan plan{.path = "/bin/sh",
                         .words = {"sh", "-c", text, "sh", folder.path().string()},
                         .environment = {"PATH=/usr/local/bin:/usr/bin:/bin"}};
    children.emplace_back(plan, signals.blocked_before());
  }
  return children;
}

LaunchOutcome supervised(const std::vector<std::string>& texts, const LaunchLimits& limits) {
  const TempFolder folder;
  LaunchSignals signals;
  auto children = shells(texts, folder, signals);
  return supervise(children, signals, limits);
}

pid_t number_in(const std::filesystem::path& file) {
  pid_t number = 0;
  std::ifstream(file) >> number;
  return number;
}

const std::string kHang = "exec sleep 1000";

}  // namespace

TEST_CASE("the limits add up to less than ten seconds after a failure") {
  const LaunchLimits usual;
  CHECK(usual.early == std::chrono::seconds(10));
  CHECK(usual.blame + usual.grace < std::chrono::seconds(10));
}

TEST_CASE("processes that all end with code 0") {
  const auto outcome = supervised({"exit 0", "exit 0", "exit 0"}, {});
  CHECK_FALSE(outcome.failure);
  CHECK_FALSE(outcome.signal);
  CHECK_FALSE(outcome.signalled);
}

TEST_CASE("the first process that fails is named") {
  const auto outcome = supervised({kHang, "exit 3", kHang}, {});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->process == 1);
  CHECK(static_cast<int>(outcome.failure->code) == 3);
  CHECK(outcome.failure->text == "process 1 ended with code 3");
}

TEST_CASE("a process that has lost a peer is not to blame for what the peer did") {
  const LaunchLimits patient{.early = kNever, .blame = kNever, .grace = kNever};
  const auto failed = supervised({"exit 10", "exit 3", "exit 10"}, patient);
  REQUIRE(failed.failure);
  CHECK(failed.failure->process == 1);
  CHECK(static_cast<int>(failed.failure->code) == 3);

  const auto killed = supervised({"exit 10", "exit 10", "kill -KILL $$"}, patient);
  REQUIRE(killed.failure);
  CHECK(killed.failure->text == "process 2 was ended by signal 9 (Killed)");
  CHECK(killed.failure->code == ExitCode::kPeer);

  const auto left = supervised({"exit 10", "exit 0", "exit 10"}, patient);
  REQUIRE(left.failure);
  CHECK(left.failure->process == 1);
  CHECK(left.failure->text == "process 1 ended with code 0 before the others were done");
  CHECK(left.failure->code == ExitCode::kPeer);
}

TEST_CASE("where no peer has ended, the process that has lost it is named") {
  const auto outcome = supervised({kHang, "exit 10", kHang}, {.blame = kAtOnce});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->text == "process 1 ended with code 10");
}

TEST_CASE("an error of usage is process 0's if it has the same one") {
  const LaunchLimits patient{.early = kNever, .blame = kNever, .grace = kNever};
  {  // Processes of another LaunchSignals would have SIGTERM blocked.
    const TempFolder folder;
    LaunchSignals signals;
    auto children = shells(
        {"while [ ! -e \"$1/failed\" ]; do sleep .02; done; exit 2", "echo > \"$1/failed\"; exit 2", kHang},
        folder, signals);
    const auto both = supervise(children, signals, {.early = kNever, .blame = kNever});
    REQUIRE(both.failure);
    CHECK(both.failure->text == "process 0 ended with code 2");
  }

  const auto other = supervised({"exit 0", kHang, "exit 2"}, patient);
  REQUIRE(other.failure);
  CHECK(other.failure->text == "process 2 ended with code 2");
  const auto alone = supervised({kHang, kHang, "exit 2"}, {.early = kNever, .blame = kAtOnce});
  REQUIRE(alone.failure);
  CHECK(alone.failure->text == "process 2 ended with code 2");
  CHECK(alone.failure->code == ExitCode::kUsage);
}

TEST_CASE("SIGPIPE of process 0 is told, and to blame where others end since it cannot write") {
  CHECK(supervised({"kill -PIPE $$", kHang}, {}).broken_pipe);
  CHECK_FALSE(supervised({kHang, "kill -PIPE $$"}, {}).broken_pipe);
  CHECK_FALSE(supervised({"exit 3", kHang}, {}).broken_pipe);
  const TempFolder folder;
  LaunchSignals signals;
  auto children = shells(
      {"while [ ! -e \"$1/failed\" ]; do sleep .02; done; kill -PIPE $$", "echo > \"$1/failed\"; exit 7"},
      folder, signals);
  const auto outcome = supervise(children, signals, {.early = kNever, .blame = kNever});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->process == 0);
  CHECK(outcome.broken_pipe);
}

TEST_CASE("a process that ends with code 0 long before the others has left them") {
  const auto outcome = supervised({kHang, "exit 0", kHang}, {.early = kAtOnce});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->process == 1);
  CHECK(outcome.failure->code == ExitCode::kPeer);
  CHECK(outcome.failure->text == "process 1 ended with code 0 before the others were done");
}

TEST_CASE("a process that was done before the launcher's signal has not left the others") {
  const auto outcome = supervised(
      {"trap 'exit 0' TERM; while [ ! -e \"$1/ready\" ]; do sleep .02; done; "
       // Once process 1 has ended: the launcher leaves it as a zombie.
       "until grep -q '^State:.Z' \"/proc/$(cat \"$1/done\")/status\"; do sleep .02; done 2>/dev/null; "
       "kill -TERM $PPID; while :; do sleep .02; done",
       "echo $$ > \"$1/new\"; mv \"$1/new\" \"$1/done\"",
       "trap 'exit 10' TERM; echo > \"$1/ready\"; while :; do sleep .02; done"},
      {.early = kNever});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->text == "process 2 ended with code 10");
}

TEST_CASE("a process that ignores SIGTERM is killed") {
  const TempFolder folder;
  LaunchSignals signals;
  auto children = shells({"trap '' TERM; echo $$ > \"$1/ready\"; exec sleep 1000",
                          "while [ ! -e \"$1/ready\" ]; do sleep .02; done; exit 7"},
                         folder, signals);
  const auto outcome = supervise(children, signals, {.grace = kAtOnce});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->process == 1);
  REQUIRE(children[0].ending());
  CHECK(children[0].ending()->signal == SIGKILL);
}

TEST_CASE("what a failed process has started ends with it") {
  const TempFolder folder;
  {
    LaunchSignals signals;
    auto children =
        shells({"trap '' TERM HUP; sleep 1000 & echo $! > \"$1/started\"; exit 7"}, folder, signals);
    CHECK(supervise(children, signals).failure);
    CHECK(is_running(number_in(folder / "started")));
  }
  CHECK(wait_until([&] { return !is_running(number_in(folder / "started")); }));
}

TEST_CASE("a signal while processes are being ended kills them") {
  const TempFolder folder;
  LaunchSignals signals;
  auto children =
      shells({"trap 'kill -TERM $PPID' TERM; while :; do sleep 1000 & echo > \"$1/ready\"; wait; done",
              "while [ ! -e \"$1/ready\" ]; do sleep .02; done; exit 7"},
             folder, signals);
  const auto outcome = supervise(children, signals, {.grace = kNever});
  REQUIRE(outcome.failure);
  CHECK(outcome.failure->process == 1);
  CHECK(outcome.signalled);
  CHECK_FALSE(outcome.signal);
  REQUIRE(children[0].ending());
  CHECK(children[0].ending()->signal == SIGKILL);
}

TEST_CASE("signals are read while the object lives, but not one that was ignored before") {
  for (const bool ignored : {false, true}) {
    const auto on_hangup = std::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
    sigset_t before, during, after;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &before);
    {
      LaunchSignals signals;
      ::pthread_sigmask(SIG_SETMASK, nullptr, &during);
      ::kill(::getpid(), SIGTERM);
      if (ignored) ::kill(::getpid(), SIGHUP);  // would come first
      CHECK(signals.wait({}) == SIGTERM);
      CHECK_FALSE(signals.wait(std::chrono::steady_clock::now()));
    }
    ::pthread_sigmask(SIG_SETMASK, nullptr, &after);
    CHECK(sigismember(&during, SIGHUP) == (ignored ? 0 : 1));
    for (const int signal : {SIGTERM, SIGCHLD}) {
      CHECK(sigismember(&during, signal) == 1);
      CHECK(sigismember(&after, signal) == sigismember(&before, signal));
    }
    std::signal(SIGHUP, on_hangup);
  }
}
