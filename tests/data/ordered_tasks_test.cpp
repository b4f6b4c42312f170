#include <sched.h>

#include <lockstep/tests/catch.h>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <iterator>
#include <latch>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include <lockstep/data/ordered_tasks.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("tasks are waited for in the order of posting, however many threads run them") {
  for (const int threads : {1, 2, 5}) {
    INFO(threads << " threads");
    std::vector<int> results(40);
    std::atomic<bool> wrong_thread = false;
    OrderedTasks tasks(threads);
    for (int i = 0; i < 40; ++i) {
      tasks.post([&, i](int thread, const std::stop_token&) {
        if (thread < 0 || thread >= threads) wrong_thread = true;
        results[static_cast<size_t>(i)] = i + 1;
      });
      if (i >= 3) {
        tasks.wait();
        CHECK(results[static_cast<size_t>(i - 3)] == i - 2);
      }
    }
    CHECK_FALSE(wrong_thread);
  }
}

TEST_CASE("a later task may be done first; an exception comes out where its task is waited for") {
  std::latch second(1);
  OrderedTasks tasks(2);
  tasks.post([&](int, const std::stop_token&) { second.wait(); });
  tasks.post([&](int, const std::stop_token&) {
    second.count_down();
    throw std::runtime_error("second");
  });
  tasks.post([](int, const std::stop_token&) {});
  CHECK_NOTHROW(tasks.wait());
  CHECK_THROWS_WITH(tasks.wait(), "second");
  tasks.post([](int, const std::stop_token&) {});
  for (int i = 0; i < 4; ++i) CHECK_THROWS_WITH(tasks.wait(), "second");  // more often than there are tasks
}

namespace {

auto threads_of_process() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

}  // namespace

TEST_CASE("threads start with the first task, so those of whom nobody asks anything cost none") {
  const auto before = threads_of_process();
  OrderedTasks tasks(5);
  CHECK(threads_of_process() == before);
  tasks.post([](int, const std::stop_token&) {});
  CHECK(threads_of_process() == before + 5);
  tasks.post([](int, const std::stop_token&) {});
  CHECK(threads_of_process() == before + 5);
}

// A replica's thread is pinned, and may be the first that asks for something.
TEST_CASE("threads may run where the thread that built them might, whichever thread posts first") {
  const auto allowed = [] {
    cpu_set_t cores;
    CPU_ZERO(&cores);
    sched_getaffinity(0, sizeof(cores), &cores);
    return cores;
  };
  const auto all = allowed();
  OrderedTasks tasks(1);
  cpu_set_t found;
  CPU_ZERO(&found);
  std::thread pinned([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    int first = 0;
    while (!CPU_ISSET(first, &all)) ++first;
    CPU_SET(first, &one);
    REQUIRE(sched_setaffinity(0, sizeof(one), &one) == 0);
    tasks.post([&](int, const std::stop_token&) { found = allowed(); });
    tasks.wait();
  });
  pinned.join();
  CHECK(CPU_EQUAL(&found, &all));
}

TEST_CASE("waiting for a task that nobody has posted is refused") {
  OrderedTasks tasks(1);
  CHECK(refusal_of([&] { tasks.wait(); }) == "there is no task to wait for");
  tasks.post([](int, const std::stop_token&) {});
  CHECK_NOTHROW(tasks.wait());
  CHECK(refusal_of([&] { tasks.wait(); }) == "there is no task to wait for");
}

TEST_CASE("tasks that are done can be forgotten in place of being waited for") {
  std::latch second(1), go_on(1);
  OrderedTasks tasks(1);
  tasks.post([](int, const std::stop_token&) { throw std::runtime_error("first"); });
  tasks.post([&](int, const std::stop_token&) {  // begins when the first one is done
    second.count_down();
    go_on.wait();
  });
  second.wait();
  tasks.forget_done();
  go_on.count_down();
  CHECK_NOTHROW(tasks.wait());  // for the second one
  CHECK(refusal_of([&] { tasks.wait(); }) == "there is no task to wait for");
}

TEST_CASE("destruction tells the tasks that run to stop, and starts no others") {
  std::atomic<int> begun = 0;
  std::latch running(1);
  {
    OrderedTasks tasks(1);
    for (int i = 0; i < 3; ++i) {
      tasks.post([&](int, const std::stop_token& stop) {
        if (begun++ == 0) running.count_down();
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any().wait(lock, stop, [] { return false; });
      });
    }
    running.wait();
  }
  CHECK(begun == 1);
}
