// Watches and the store that they share: its host stays while others need it, and the store may fail.
#include <lockstep/tests/catch.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/tests/parallel/collectives/gloo/failures/watched.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
using std::chrono::milliseconds;

namespace {

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

}  // namespace

TEST_CASE("the store's host stays until the others have what they need") {
  const bool own_error = GENERATE(true, false);
  const Watched world(3);
  auto last = world.board(2);
  if (!own_error) last.publish({.kind = ReportKind::kError, .text = "broke"});
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
  failed.publish({.kind = ReportKind::kError, .text = "broke"});
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
    world.board(process).publish({.kind = ReportKind::kWaits, .text = std::to_string(process)});
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
  const auto watch = world.watch(1, {.poll = milliseconds(1), .beat = milliseconds(1)});
  world.board(0).publish({.kind = ReportKind::kLeft});
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
  run_worlds(worlds_of(3), [&](int process, ProcessGroup& group) {
    auto& end = ends[static_cast<size_t>(process)];
    try {
      const auto channel = open_channel(group);
      channel->allreduce_sum(torch::ones({4})).get();
      if (process == 2) throw OutputError("the disk is full");
      channel->allreduce_sum(torch::ones({5})).get();
    } catch (const Error&) {
      end = message_of<Error>(group.explain(std::current_exception(), {}));
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
  run_worlds(worlds_of(3), [&](int process, ProcessGroup& group) {
    auto& end = ends[static_cast<size_t>(process)];
    try {
      const auto channel = open_channel(group);
      channel->allreduce_sum(torch::ones({4})).get();
      if (process == silent) throw Leaves();
      channel->allreduce_sum(torch::ones({5})).get();
    } catch (const Error&) {
      end = message_of<PeerError>(group.explain(std::current_exception(), {}));
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
