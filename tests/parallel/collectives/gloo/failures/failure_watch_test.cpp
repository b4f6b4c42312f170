// Watches of several processes on one store in memory: what they report, and the verdict on it.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <lockstep/tests/parallel/collectives/gloo/failures/watched.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

TEST_CASE("an error of its own is the process's own, and the verdict of the others") {
  const Watched world(3);
  const auto failing = world.watch(0, kPatient), second = world.watch(1, kPatient),
             third = world.watch(2, kPatient);
  const auto error = std::make_exception_ptr(OutputError("the disk is\nfull"));
  CHECK(failing->explain(error, "ranks 0-1 (process 0)") == error);
  CHECK(failing->explain(kLostPeer, "") == kLostPeer);  // only the first call counts
  second->add("0", waiting_for(4));
  CHECK(verdict_of(*second) == "ranks 0-1 (process 0) failed first: the disk is full");
  CHECK(verdict_of(*third) == "ranks 0-1 (process 0) failed first: the disk is full");
}

TEST_CASE("any exception is an error of its own") {
  const Watched world(2);
  const auto failing = world.watch(1, kPatient), other = world.watch(0, kPatient);
  failing->explain(std::make_exception_ptr(std::runtime_error("it broke")), "");
  CHECK(verdict_of(*other) == "process 1 failed first: it broke");
}

TEST_CASE("a process without a watch is silent, and all others say the same of it") {
  const Watched world(3);
  const auto first = world.watch(0, kNoGrace), second = world.watch(1, kNoGrace);
  first->add("0", waiting_for(7));
  const auto verdict = verdict_of(*first);
  // The first to judge saw what was there; process 1 may have answered after that.
  CHECK_THAT(verdict, ContainsSubstring("does not answer") || ContainsSubstring("do not answer"));
  CHECK_THAT(verdict, ContainsSubstring("; process 0 waited for allreduce 7 of 3 float32 for "));
  CHECK(verdict_of(*second) == verdict);
}

TEST_CASE("at the alarm every process reports by itself, and its collectives end") {
  const Watched world(2);
  const auto first = world.watch(0, {}), second = world.watch(1, {});
  const auto posted = waiting_for(3);
  auto next = posted->begin({.number = 4});
  second->add("0", posted);
  first->add("0", waiting_for(5));
  CHECK_FALSE(second->ends_waits());
  CHECK(verdict_of(*first) ==
        "all processes answer, and wait for each other: process 0 of 2 for allreduce 5 of 3 float32 on 0; "
        "process 1 of 2 for allreduce 3 of 3 float32 on 0");
  CHECK(message_of<PeerError>([&] { next.get(); }) == "another process cannot go on");
  CHECK(second->ends_waits());
}

TEST_CASE("calls that differ at one place of a channel are named") {
  const Watched world(2);
  const auto first = world.watch(0, {}), second = world.watch(1, {});
  const auto posted = std::make_shared<PostedCollectives>();
  posted->begin({.number = 5, .name = "all_gather", .elements = 7, .type = "int64"});
  second->add("0", posted);
  first->add("0", waiting_for(5));
  CHECK(verdict_of(*first) ==
        "the processes wait for different collectives: process 0 for allreduce 5 of 3 float32, process 1 for "
        "all_gather 5 of 7 int64");
}

namespace {

// Compares at once, and waits for all reports.
const WatchLimits kComparing{.poll = milliseconds(1),
                             .grace = kNever,
                             .stay = kNever,
                             .beat = milliseconds(1),
                             .answer = kNever,
                             .compare = milliseconds(0)};

// A collective on channel "0".
struct Waiting {
  explicit Waiting(const char* name)
      : done(posted->begin({.name = name, .elements = 3, .type = "float32"})) {}

  std::string error() {
    if (done.wait_for(kNever) != std::future_status::ready) return "it waits";
    return message_of<PeerError>([this] { done.get(); });
  }

  std::shared_ptr<PostedCollectives> posted = std::make_shared<PostedCollectives>();
  std::future<void> done;
};

size_t count_reports(FailureBoard board) {
  const auto& reports = board.reports();
  return static_cast<size_t>(std::count_if(reports.begin(), reports.end(), [](auto& one) { return !!one; }));
}

}  // namespace

TEST_CASE("where calls differ no process ends before all know it, and then by the verdict alone") {
  const Watched world(3);
  const auto first = world.watch(0, kComparing), second = world.watch(1, kComparing);
  Waiting sum("allreduce"), copy("broadcast");
  first->add("0", sum.posted);
  second->add("0", copy.posted);
  while (count_reports(world.board(2)) < 2) std::this_thread::yield();
  CHECK(sum.done.wait_for(milliseconds(100)) == std::future_status::timeout);  // process 2 does not know it
  CHECK_FALSE(first->ends_waits());
  copy.posted->fail(kLostPeer);  // by Gloo's thread, if another process ended now
  const std::string verdict =
      "the processes wait for different collectives: process 0 for allreduce 0 of 3 float32, process 1 for "
      "broadcast 0 of 3 float32";
  CHECK(copy.error() == verdict);
  world.board(2).publish({.kind = ReportKind::kBusy});
  CHECK(sum.error() == verdict);
}

TEST_CASE("a verdict on calls that differ waits for no dead process") {
  const Watched world(3);
  auto limits = kComparing;
  limits.grace = milliseconds(50);
  const auto first = world.watch(0, limits), second = world.watch(1, limits);
  Waiting sum("allreduce"), copy("broadcast");
  first->add("0", sum.posted);
  second->add("0", copy.posted);
  CHECK_THAT(sum.error(), StartsWith("the processes wait for different collectives: "));
  CHECK(copy.error() == verdict_of(*second));
}

// A process that receives a broadcast goes on while its root still sends to others.
TEST_CASE("a process that comes late is compared with all that still wait in its place") {
  const Watched world(3);
  const auto root = world.watch(0, kComparing), ahead = world.watch(1, kComparing),
             late = world.watch(2, kComparing);
  const auto wait_for_key = [&](const std::string& key) {
    while (!world.store->check({key})) std::this_thread::yield();
  };
  Waiting received("broadcast"), sent("broadcast"), sum("allreduce");
  ahead->add("0", received.posted);
  wait_for_key("failure/waits/0/0");
  root->add("0", sent.posted);
  auto board = world.board(2);
  const auto beats = board.beats(0);
  while (board.beats(0) < beats + 3) std::this_thread::yield();  // it has compared since
  auto next = received.posted->begin({.number = 1, .name = "allreduce", .elements = 3, .type = "float32"});
  received.posted->finish(0);
  wait_for_key("failure/waits/0/1");
  late->add("0", sum.posted);
  const std::string verdict =
      "the processes wait for different collectives: process 0 for broadcast 0 of 3 float32, process 2 for "
      "allreduce 0 of 3 float32";
  CHECK(sum.error() == verdict);
  CHECK(sent.error() == verdict);
  CHECK(verdict_of(*ahead) == verdict);
}

TEST_CASE("channels that open after the alarm end at once") {
  const Watched world(2);
  const auto failing = world.watch(1, kNoGrace), other = world.watch(0, kNoGrace);
  failing->explain(std::make_exception_ptr(OutputError("full")), "");
  verdict_of(*other);
  const auto posted = std::make_shared<PostedCollectives>();
  other->add("7", posted);
  auto done = posted->begin({});
  CHECK(message_of<PeerError>([&] { done.get(); }) == "another process cannot go on");
}

TEST_CASE("a process that gives no sign of life is noticed by one that waits for others in the store") {
  const Watched world(3);
  const WatchLimits limits{.poll = milliseconds(1), .beat = milliseconds(1), .silence = milliseconds(50)};
  // Process 2 has died. The one before it waits, and gives the alarm.
  const auto first = world.watch(0, limits), second = world.watch(1, limits);
  const auto posted = std::make_shared<PostedCollectives>();
  auto gather = posted->begin({.name = "gather", .elements = 2, .type = "bytes"});
  SECTION("through the store") {
    second->add("store", posted, ChannelKind::kStore);
    CHECK(message_of<PeerError>([&] { gather.get(); }) == "another process cannot go on");
    CHECK_THAT(verdict_of(*second), StartsWith("process 2 of 3 (node, pid 102) does not answer"));
    CHECK(first->ends_waits());
  }
  SECTION("sockets tell it themselves, and a process that only hangs may take its time") {
    second->add("0", posted);
    while (world.board(0).beats(1) < 200) std::this_thread::yield();
    CHECK_FALSE(second->ends_waits());
  }
}

TEST_CASE("signs of life keep the alarm off") {
  const Watched world(2);
  auto limits = kNoGrace;
  limits.beat = milliseconds(1);
  limits.silence = milliseconds(2'000);
  const auto first = world.watch(0, limits), second = world.watch(1, limits);
  const auto posted = std::make_shared<PostedCollectives>();
  posted->begin({.name = "gather"});
  first->add("store", posted, ChannelKind::kStore);
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() < begin + limits.silence + milliseconds(500)) {
    std::this_thread::yield();
  }
  CHECK_FALSE(first->ends_waits());
}

TEST_CASE("a process that answers but waits for nobody takes no part, and one that is done has left") {
  const bool done = GENERATE(false, true);
  const Watched world(2);
  const auto first = world.watch(0, {}), second = world.watch(1, {});
  if (done) second->leave();
  first->add("1", waiting_for(0));
  const std::string what =
      done ? "left before the others" : "answers but takes no part: it still computes, or hangs";
  CHECK_THAT(verdict_of(*first), ContainsSubstring("process 1 of 2 (node, pid 101) " + what));
}

TEST_CASE("a process that leaves and ends at once has told that it left") {
  const Watched world(2);
  auto leaving = world.watch(1, {.poll = kNever});
  leaving->leave();
  leaving.reset();
  const auto other = world.watch(0, kNoGrace);
  CHECK_THAT(verdict_of(*other), ContainsSubstring("process 1 of 2 (node, pid 101) left before the others"));
}

TEST_CASE("a process reports the collective that failed first, else the one that has waited longest") {
  const Watched world(2);
  const auto first = world.watch(0, kNoGrace);
  first->add("0", waiting_for(1));
  auto longest = std::make_shared<PostedCollectives>();
  longest->begin({.number = 2, .name = "x", .type = "y", .begin = PostedCollective::Clock::now() - kNever});
  first->add("1", longest);
  SECTION("nothing has failed") { CHECK_THAT(verdict_of(*first), ContainsSubstring("x 2 of 0 y for 60.")); }
  SECTION("one has failed") {
    const auto failed = waiting_for(3);
    failed->fail(kLostPeer);
    longest->fail(kLostPeer);
    first->add("2", failed);
    CHECK_THAT(verdict_of(*first), ContainsSubstring("allreduce 3 of 3 float32"));
  }
}
