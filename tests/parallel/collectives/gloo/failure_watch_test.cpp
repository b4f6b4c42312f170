// Watches of several processes on one store in memory, and on stores that fail.
#include <lockstep/parallel/collectives/gloo/failure_watch.h>
#include <lockstep/tests/catch.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <latch>
#include <stdexcept>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <lockstep/parallel/collectives/gloo/c10d_store.h>
#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/tests/parallel/collectives/gloo/joined.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kNever{60'000};
// Only the reports that are there count.
const WatchLimits kNoGrace{
    .look = milliseconds(1), .grace = milliseconds(0), .stay = kNever, .answer = kNever};
// All reports come.
const WatchLimits kPatient{.look = milliseconds(1), .grace = kNever, .stay = kNever, .answer = kNever};

// Does not answer until it is released, as the store of a stopped process.
class StoppedStore : public c10d::HashStore {
 public:
  using HashStore::check;
  bool check(const std::vector<std::string>& keys) override {
    released.wait();
    return HashStore::check(keys);
  }
  std::latch released{1};
};

// Its server is gone.
class LostStore : public c10d::HashStore {
 public:
  bool check(const std::vector<std::string>&) override {
    throw std::runtime_error("Connection reset by peer");
  }
  int64_t add(const std::string&, int64_t) override { throw std::runtime_error("Connection reset by peer"); }
};

// Its server goes with its process.
class EndingStore : public c10d::HashStore {
 public:
  using HashStore::check;
  bool check(const std::vector<std::string>& keys) override {
    if (ended) throw std::runtime_error("Connection reset by peer");
    return HashStore::check(keys);
  }
  std::atomic<bool> ended = false;
};

// Writes to a closed pipe, as c10d's store to the socket of a server that has gone.
void write_in_vain() {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
  ::close(ends[0]);
  const auto written = ::write(ends[1], "x", 1);
  ::close(ends[1]);
  if (written < 0) throw std::runtime_error("Broken pipe");
}

class PipeStore : public c10d::HashStore {
 public:
  using HashStore::check;
  bool check(const std::vector<std::string>&) override {
    write_in_vain();
    return false;
  }
};

// One store, and a watch of each process that is there.
struct Watched {
  explicit Watched(int count,
                   c10::intrusive_ptr<c10d::Store> its_store = c10::make_intrusive<c10d::HashStore>())
      : processes(static_cast<size_t>(count)), store(std::move(its_store)) {
    for (int i = 0; i < count; ++i) {
      auto& own = processes[static_cast<size_t>(i)];
      own.host = "node";
      own.pid = 100 + i;
    }
  }

  FailureBoard board(int process) const {
    return {std::make_shared<C10dStore>(C10dStore{store}), process, static_cast<int>(processes.size())};
  }

  std::unique_ptr<FailureWatch> watch(int process, const WatchLimits& limits,
                                      bool serves_store = false) const {
    return std::make_unique<FailureWatch>(board(process), WatchOptions{.process = process,
                                                                       .serves_store = serves_store,
                                                                       .processes = processes,
                                                                       .store = {.place = "here:1"},
                                                                       .limits = limits});
  }

  std::vector<Presence> processes;
  c10::intrusive_ptr<c10d::Store> store;
};

std::shared_ptr<PostedCollectives> waiting_for(uint64_t number) {
  auto posted = std::make_shared<PostedCollectives>();
  posted->begin({.number = number, .name = "allreduce", .elements = 3, .type = "float32"});
  return posted;
}

const std::exception_ptr kLostPeer = std::make_exception_ptr(PeerError("words of Gloo"));

// What a process that has lost another one ends by.
std::string verdict_of(FailureWatch& watch) { return message_of<PeerError>(watch.explain(kLostPeer, "")); }

}  // namespace

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
  CHECK_FALSE(second->alarmed());
  CHECK(verdict_of(*first) == "all processes answer, and wait for each other: words of Gloo");
  CHECK(second->alarmed());
  CHECK(message_of<PeerError>([&] { next.get(); }) == "another process cannot go on");
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
  const WatchLimits limits{.look = milliseconds(1), .beat = milliseconds(1), .silence = milliseconds(50)};
  // Process 2 has died. The one before it waits, and gives the alarm.
  const auto first = world.watch(0, limits), second = world.watch(1, limits);
  const auto posted = std::make_shared<PostedCollectives>();
  auto gather = posted->begin({.name = "gather", .elements = 2, .type = "bytes"});
  SECTION("through the store") {
    second->add("store", posted, ChannelKind::kStore);
    CHECK(message_of<PeerError>([&] { gather.get(); }) == "another process cannot go on");
    CHECK_THAT(verdict_of(*second), StartsWith("process 2 of 3 (node, pid 102) does not answer"));
    CHECK(first->alarmed());
  }
  SECTION("sockets tell it themselves, and a process that only hangs may take its time") {
    second->add("0", posted);
    while (world.board(0).beats(1) < 200) std::this_thread::yield();
    CHECK_FALSE(second->alarmed());
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
  CHECK_FALSE(first->alarmed());
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
  auto leaving = world.watch(1, {.look = kNever});
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

TEST_CASE("the store's host stays until the others have what they need") {
  const bool own_error = GENERATE(true, false);
  const Watched world(3);
  auto last = world.board(2);
  if (!own_error) last.publish({.kind = ReportKind::kError, .text = "broke"}, /*alarm=*/true);
  last.leave();
  const auto host = world.watch(0, kPatient, /*serves_store=*/true), other = world.watch(1, kPatient);
  std::string seen;
  std::jthread another([&] { seen = verdict_of(*other); });
  host->explain(own_error ? std::make_exception_ptr(OutputError("full")) : kLostPeer, "");
  CHECK(world.board(0).left(1));
  another.join();
  CHECK(seen == (own_error ? "process 0 failed first: full" : "process 2 failed first: broke"));
}

TEST_CASE("after an early verdict the store's host stays for those that have not looked yet") {
  const Watched world(3);
  auto failed = world.board(2);
  failed.publish({.kind = ReportKind::kError, .text = "broke"}, /*alarm=*/true);
  failed.leave();
  const auto host = world.watch(0, kPatient, /*serves_store=*/true);
  std::jthread ending([&] { host->explain(kLostPeer, ""); });
  while (!world.board(0).verdict()) std::this_thread::yield();
  const auto late = world.watch(1, kPatient);
  CHECK(verdict_of(*late) == "process 2 failed first: broke");
  ending.join();
  CHECK(world.board(0).left(1));
}

TEST_CASE("after the verdict the store's host waits for no silent process") {
  const Watched world(3);
  auto limits = kPatient;
  limits.grace = milliseconds(0);
  const auto host = world.watch(0, limits, /*serves_store=*/true);
  CHECK_THAT(verdict_of(*host), ContainsSubstring("processes 1 and 2 of 3"));
}

TEST_CASE("a process that was counted but has written no report is silent") {
  const Watched world(2);
  world.store->add("failure/reports", 1);
  const auto first = world.watch(0, kNoGrace);
  CHECK_THAT(verdict_of(*first), ContainsSubstring("process 1 of 2 (node, pid 101) does not answer"));
}

TEST_CASE("all reports are found between processes that were counted but have written none") {
  const Watched world(9);
  for (const int process : {4, 0, 8, 2, 7}) {
    world.board(process).publish({.kind = ReportKind::kWaits, .text = std::to_string(process)}, false);
    if (process % 4 == 0) world.store->add("failure/reports", 1);
  }
  auto board = world.board(1);
  std::vector<std::string> texts;
  for (const auto& report : board.reports()) texts.push_back(report ? report->text : "none");
  CHECK(texts == std::vector<std::string>{"0", "none", "2", "none", "4", "none", "none", "7", "8"});
}

TEST_CASE("a store's host that was done before its store went is known to have left") {
  const auto store = c10::make_intrusive<EndingStore>();
  const Watched world(2, store);
  const auto watch = world.watch(1, {.look = milliseconds(1), .beat = milliseconds(1)});
  world.board(0).publish({.kind = ReportKind::kLeft}, /*alarm=*/false);
  const auto beats = world.board(0).beats(1);
  while (world.board(0).beats(1) < beats + 3) std::this_thread::yield();  // it has looked since
  store->ended = true;
  CHECK_THAT(verdict_of(*watch), StartsWith("process 0 of 2 (node, pid 100) left before the others"));
}

TEST_CASE("a server that has gone is an error, also where SIGPIPE ends the program") {
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  CHECK_THROWS_WITH(call_within(kNever, write_in_vain), "Broken pipe");
  {
    const Watched world(2, c10::make_intrusive<PipeStore>());
    const auto watch = world.watch(1, kPatient);
    CHECK_THAT(verdict_of(*watch), ContainsSubstring("nor does the store that it serves"));
  }
  std::signal(SIGPIPE, before);
}

TEST_CASE("a store that is lost, or that hangs, does not keep a process") {
  const std::string blamed =
      "process 0 of 2 (node, pid 100) does not answer, nor does the store that it serves";
  {
    const Watched world(2, c10::make_intrusive<LostStore>());
    const auto watch = world.watch(1, kPatient);
    CHECK_THAT(verdict_of(*watch), ContainsSubstring(blamed));
  }
  const auto stopped = c10::make_intrusive<StoppedStore>();
  {
    const Watched world(2, stopped);
    auto limits = kPatient;
    limits.answer = milliseconds(50);
    const auto watch = world.watch(1, limits);
    watch->add("0", waiting_for(9));
    CHECK_THAT(verdict_of(*watch), ContainsSubstring(blamed) &&
                                       ContainsSubstring("process 1 waited for allreduce 9 of 3 float32"));
    const auto idle = world.watch(0, limits);  // is destroyed, too
  }
  stopped->released.count_down();
}

TEST_CASE("processes of one store name the one that fails, in all of the others") {
  std::vector<std::string> ends(3);
  run_worlds(worlds_of(3), [&](int process, Processes& processes) {
    auto& end = ends[static_cast<size_t>(process)];
    try {
      const auto channel = std::move(processes.open_channels(1).front());
      channel->allreduce_sum(torch::ones({4})).get();
      if (process == 2) throw OutputError("the disk is full");
      channel->allreduce_sum(torch::ones({5})).get();
    } catch (const Error&) {
      end = message_of<Error>(processes.explain(std::current_exception(), {}));
    }
    throw Leaves();
  });
  CHECK(ends[2] == "the disk is full");
  CHECK(ends[0] == "process 2 failed first: the disk is full");
  CHECK(ends[1] == ends[0]);
}

TEST_CASE("processes name the one that leaves without a word, the store's host, too") {
  const int silent = GENERATE(0, 1);
  std::vector<std::string> ends(3);
  run_worlds(worlds_of(3), [&](int process, Processes& processes) {
    auto& end = ends[static_cast<size_t>(process)];
    try {
      const auto channel = std::move(processes.open_channels(1).front());
      channel->allreduce_sum(torch::ones({4})).get();
      if (process == silent) throw Leaves();
      channel->allreduce_sum(torch::ones({5})).get();
    } catch (const Error&) {
      end = message_of<PeerError>(processes.explain(std::current_exception(), {}));
    }
    throw Leaves();
  });
  // Its own watch may still have answered, while it left.
  const auto blamed = "process " + std::to_string(silent) + " of 3 (";
  for (int process = 0; process < 3; ++process) {
    if (process == silent) continue;
    const auto& end = ends[static_cast<size_t>(process)];
    CHECK_THAT(end, StartsWith(blamed) && ContainsSubstring("waited for allreduce 1 of 5 float32 for "));
  }
  if (silent == 1) CHECK(ends[0] == ends[2]);
}
