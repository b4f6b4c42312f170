// Threads collect what they see; the main thread asserts, since Catch2's assertions are not thread-safe.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <atomic>
#include <exception>
#include <stdexcept>
#include <thread>
#include <vector>

#include <lockstep/parallel/threads/barrier.h>

using lockstep::Barrier;

namespace {

std::exception_ptr failure(const char* what) { return std::make_exception_ptr(std::runtime_error(what)); }

// The exception of arrive_and_wait(); null if it returns.
std::exception_ptr error_of_arrival(Barrier& barrier) {
  try {
    barrier.arrive_and_wait();
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Runs body(0), ..., body(count - 1), each in its own thread; returns when all have ended.
template <class Body>
void in_threads(int count, const Body& body) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body, static_cast<size_t>(i));
}

}  // namespace

TEST_CASE("after each round all parties see what every party wrote before it") {
  constexpr int kRounds = 200;
  for (int parties = 1; parties <= 6; ++parties) {
    Barrier barrier(parties);
    // Plain ints: only the barrier orders these writes and reads.
    std::vector<int> written(static_cast<size_t>(parties));
    std::vector<int> wrong(static_cast<size_t>(parties));
    in_threads(parties, [&](size_t i) {
      for (int round = 1; round <= kRounds; ++round) {
        written[i] = round;
        barrier.arrive_and_wait();
        for (const int value : written) wrong[i] += value != round;
        barrier.arrive_and_wait();
      }
    });
    INFO(parties << " parties");
    CHECK(wrong == std::vector<int>(static_cast<size_t>(parties)));
    CHECK(barrier.error() == nullptr);
  }
}

TEST_CASE("abort ends the wait for a party that never comes, with abort's error") {
  const auto error = failure("a replica died");
  Barrier barrier(4);
  std::vector<std::exception_ptr> seen(3);  // the fourth party never comes
  {
    std::vector<std::jthread> threads;
    for (auto& slot : seen) threads.emplace_back([&] { slot = error_of_arrival(barrier); });
    barrier.abort(error);
  }
  for (const auto& caught : seen) CHECK(caught == error);
  CHECK(barrier.error() == error);

  CHECK(error_of_arrival(barrier) == error);  // later arrivals throw, too
  barrier.abort(failure("a later one"));
  CHECK(barrier.error() == error);
  CHECK(error_of_arrival(barrier) == error);
  CHECK_THROWS_WITH(barrier.arrive_and_wait(), "a replica died");
}

TEST_CASE("of several concurrent aborts all parties get the same one") {
  constexpr size_t kThreads = 4;
  for (int repeat = 0; repeat < 50; ++repeat) {
    Barrier barrier(kThreads + 1);
    std::vector<std::exception_ptr> given(kThreads);
    std::vector<std::exception_ptr> seen(kThreads);
    for (auto& error : given) error = failure("mine");
    in_threads(kThreads, [&](size_t i) {
      barrier.abort(given[i]);
      seen[i] = error_of_arrival(barrier);
    });
    REQUIRE(std::count(given.begin(), given.end(), barrier.error()) == 1);
    REQUIRE(seen == std::vector(kThreads, barrier.error()));
  }
}

TEST_CASE("a round that is aborted succeeds for all parties or for none") {
  constexpr size_t kParties = 4;
  const auto error = failure("stop");
  for (int repeat = 0; repeat < 100; ++repeat) {
    Barrier barrier(kParties);
    std::atomic<int> arrivals = 0;
    std::vector<int> passed(kParties);
    std::vector<std::exception_ptr> seen(kParties);
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < kParties; ++i) {
        threads.emplace_back([&, i] {
          for (; !seen[i]; passed[i] += !seen[i]) {
            ++arrivals;
            seen[i] = error_of_arrival(barrier);
          }
        });
      }
      while (arrivals < repeat) std::this_thread::yield();  // another moment of the round each time
      barrier.abort(error);
    }
    REQUIRE(passed == std::vector(kParties, passed.front()));
    REQUIRE(seen == std::vector(kParties, error));
  }
}
