#include <unistd.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using lockstep::testing::Threads;

namespace {

// The thread of each part. No part ends before all have begun, so no two parts can share a thread.
// Zeros if they have not all begun within half a minute.
std::vector<pid_t> threads_of(int64_t parts) {
  std::vector<pid_t> threads(static_cast<size_t>(parts));
  std::atomic<int64_t> here = 0;
  std::atomic<bool> late = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  parallel_parts(parts, [&](int64_t part) {
    threads[static_cast<size_t>(part)] = ::gettid();
    ++here;
    while (here < parts && !late) {
      if (std::chrono::steady_clock::now() > deadline) late = true;
      std::this_thread::yield();
    }
  });
  return late ? std::vector<pid_t>(threads.size()) : threads;
}

}  // namespace

TEST_CASE("parallel_parts runs each part once and waits for all") {
  for (const int count : {1, 2, 3}) {
    const Threads threads(count);
    for (const int64_t parts : {0, 1, 2, 3, 7, 16}) {
      std::vector<std::atomic<int>> times(static_cast<size_t>(parts));
      parallel_parts(parts, [&](int64_t part) { ++times[static_cast<size_t>(part)]; });
      for (const auto& of_part : times) CHECK(of_part == 1);
    }
  }
}

TEST_CASE("parts run at the same time, the first in the caller's thread") {
  const Threads threads(3);
  const auto of_parts = threads_of(3);
  CHECK(of_parts[0] == ::gettid());
  CHECK(of_parts[1] != of_parts[0]);
  CHECK(of_parts[2] != of_parts[0]);
  CHECK(of_parts[2] != of_parts[1]);
}

TEST_CASE("the threads stay the same, however many parts there are") {
  const Threads threads(4);
  const auto before = threads_of(4);
  REQUIRE(before[0] == ::gettid());
  for (const int64_t parts : {2, 3, 1, 4, 2}) threads_of(parts);
  CHECK(threads_of(4) == before);
}

TEST_CASE("a single part runs in the calling thread") {
  std::thread::id thread;
  parallel_parts(1, [&](int64_t) { thread = std::this_thread::get_id(); });
  CHECK(thread == std::this_thread::get_id());
}

TEST_CASE("ranges differ by at most one, and empty ones are left out") {
  using Range = std::vector<int64_t>;  // first, last, part
  const auto ranges = [](int64_t count, int64_t parts) {
    std::vector<Range> found(static_cast<size_t>(parts));
    parallel_ranges(count, parts, [&](int64_t first, int64_t last, int64_t part) {
      found[static_cast<size_t>(part)] = {first, last, part};
    });
    return found;
  };
  CHECK(ranges(7, 3) == std::vector<Range>{{0, 2, 0}, {2, 4, 1}, {4, 7, 2}});
  CHECK(ranges(6, 2) == std::vector<Range>{{0, 3, 0}, {3, 6, 1}});
  CHECK(ranges(2, 3) == std::vector<Range>{{}, {0, 1, 1}, {1, 2, 2}});
  CHECK(ranges(0, 2) == std::vector<Range>{{}, {}});
  CHECK(ranges(5, 1) == std::vector<Range>{{0, 5, 0}});
}
