#include <lockstep/tests/catch.h>
#include <array>
#include <atomic>
#include <barrier>
#include <latch>
#include <set>
#include <stdexcept>

#include <lockstep/parallel/threads/worker_pool.h>
#include <lockstep/support/error.h>

using lockstep::WorkerPool;

namespace {
const auto kNothing = [](int) {};
}

TEST_CASE("every worker runs each task once, in its own thread") {
  for (int size = 1; size <= 8; ++size) {
    std::vector<std::thread::id> at_start(static_cast<size_t>(size));
    WorkerPool pool(size,
                    [&](int worker) { at_start[static_cast<size_t>(worker)] = std::this_thread::get_id(); });
    CHECK(std::set(at_start.begin(), at_start.end()).size() == static_cast<size_t>(size));
    CHECK(pool.size() == size);

    std::vector<int> calls(
        static_cast<size_t>(size));  // plain ints: run() must order these writes before the reads
    for (int round = 1; round <= 100; ++round) {
      pool.run([&](int worker) {
        const auto i = static_cast<size_t>(worker);
        if (std::this_thread::get_id() == at_start[i]) ++calls[i];
      });
      for (const int count : calls) REQUIRE(count == round);
    }
  }
}

TEST_CASE("workers run at the same time") {
  constexpr int kSize = 5;
  WorkerPool pool(kSize, kNothing);
  std::barrier all_here(kSize);  // would never open if one worker waited for another to finish
  std::atomic<int> passed = 0;
  pool.run([&](int) {
    all_here.arrive_and_wait();
    ++passed;
  });
  CHECK(passed == kSize);
}

TEST_CASE(
    "the lowest failing worker's exception is rethrown after all have finished, and the pool can be used "
    "again") {
  WorkerPool pool(4, kNothing);
  std::atomic<int> finished = 0;
  const auto task = [&](int worker) {
    if (worker == 3) throw std::runtime_error("three");
    if (worker == 1) throw std::out_of_range("one");
    ++finished;
  };
  CHECK_THROWS_WITH(pool.run(task), "one");
  CHECK(finished == 2);

  pool.run([&](int) { ++finished; });  // no error left over
  CHECK(finished == 6);
}

TEST_CASE("a worker that cannot start fails the pool and leaves no thread behind") {
  std::atomic<int> started = 0;
  const auto make = [&] {
    const WorkerPool pool(3, [&](int worker) {
      ++started;
      if (worker == 2) throw std::runtime_error("no core for worker 2");
    });
  };
  CHECK_THROWS_WITH(make(), "no core for worker 2");  // a thread that was not joined would end the process
  CHECK(started == 3);
}

TEST_CASE("started rounds run one after another in each worker while the caller goes on") {
  constexpr int kSize = 3;
  WorkerPool pool(kSize, kNothing);
  std::latch caller_went_on(1);  // no worker goes on before both rounds have been started
  std::array<std::vector<int>, kSize> seen;
  const auto round = [&](int number) {
    return [&, number](int worker) {
      caller_went_on.wait();
      seen[static_cast<size_t>(worker)].push_back(number);
    };
  };
  pool.start(round(1));
  pool.start(round(2));
  caller_went_on.count_down();
  pool.wait();
  for (const auto& numbers : seen) CHECK(numbers == std::vector{1, 2});
  pool.run(round(3));
  for (const auto& numbers : seen) CHECK(numbers == std::vector{1, 2, 3});
}

TEST_CASE("wait(n) leaves n rounds in flight") {
  WorkerPool pool(2, kNothing);
  std::latch open(1);
  std::array<int, 2> first = {0, 0};
  std::atomic<int> second = 0;
  pool.start([&](int worker) { first[static_cast<size_t>(worker)] = 1; });
  pool.start([&](int) {
    open.wait();
    ++second;
  });
  pool.wait(1);  // would not return if it waited for the second
  CHECK(first == std::array{1, 1});
  CHECK(second == 0);
  pool.wait(5);
  CHECK(second == 0);
  open.count_down();
  pool.wait();
  CHECK(second == 2);
}

TEST_CASE("the exception of a round in flight is rethrown once, by the wait for that round") {
  WorkerPool pool(2, kNothing);
  std::atomic<int> after = 0;
  pool.start([](int worker) {
    if (worker == 1) throw std::runtime_error("first round");
  });
  pool.start([&](int worker) {
    ++after;
    if (worker == 0) throw std::runtime_error("second round");
  });
  CHECK_THROWS_WITH(pool.wait(), "first round");
  CHECK(after == 2);
  CHECK_NOTHROW(pool.wait());
  pool.start([](int) { throw std::runtime_error("unheard"); });  // the pool is destroyed without a wait
}

TEST_CASE("the destructor waits for the rounds in flight") {
  std::atomic<int> done = 0;
  {
    WorkerPool pool(4, kNothing);
    for (int round = 0; round < 50; ++round) pool.start([&](int) { ++done; });
  }
  CHECK(done == 200);
}

TEST_CASE("a worker that waits for its own pool is refused, and the pool goes on") {
  WorkerPool pool(2, kNothing), other(2, kNothing);
  CHECK_THROWS_AS(pool.run([&](int) { pool.run(kNothing); }), lockstep::UsageError);
  CHECK_THROWS_AS(pool.run([&](int worker) {
    if (worker == 1) pool.start(kNothing);
  }),
                  lockstep::UsageError);
  CHECK_THROWS_AS(pool.run([&](int) { pool.wait(); }), lockstep::UsageError);
  CHECK_NOTHROW(pool.run([&](int worker) {
    if (worker == 0) other.run(kNothing);  // of another pool it may
  }));
}
