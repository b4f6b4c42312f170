// Threads collect what they see; the main thread asserts, since Catch2's assertions are not thread-safe.
#include <lockstep/tests/catch.h>
#include <functional>
#include <future>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include <lockstep/parallel/threads/task_thread.h>

using lockstep::TaskThread;

TEST_CASE("one thread runs on_start and then all tasks in the order of posting") {
  std::vector<int>
      done;  // plain: only that thread writes it, and its end orders the writes before this thread's reads
  std::vector<std::thread::id> threads;
  const auto note = [&](int what) {
    done.push_back(what);
    threads.push_back(std::this_thread::get_id());
  };
  {
    TaskThread thread([&] { note(0); });
    for (int i = 1; i <= 100; ++i) thread.post([&, i] { note(i); });
  }
  std::vector<int> expected(101);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(done == expected);
  CHECK(threads == std::vector(101, threads.front()));
  CHECK(threads.front() != std::this_thread::get_id());
}

TEST_CASE("posting returns before the task is done") {
  std::latch go(1);
  bool done = false;
  {
    TaskThread thread;
    thread.post([&] {
      go.wait();
      done = true;
    });
    go.count_down();  // never reached if post() waited for the task
  }
  CHECK(done);
}

TEST_CASE("a task's result can be read while the thread lives on") {
  TaskThread thread;
  for (int i = 0; i < 100; ++i) {
    int value = 0;  // plain: the promise orders this write before the read
    const auto done = std::make_shared<std::promise<void>>();
    thread.post([&value, i, done] {
      value = i + 1;
      done->set_value();
    });
    done->get_future().wait();
    REQUIRE(value == i + 1);
  }
}

TEST_CASE("the destructor waits for all queued tasks and for those that they post") {
  std::latch go(1);
  int done = 0;
  auto owner = std::make_unique<TaskThread>();
  auto& thread = *owner;
  thread.post([&] { go.wait(); });  // keeps all others queued
  for (int i = 0; i < 100; ++i) thread.post([&] { ++done; });
  const std::function<void(int)> chain = [&](int left) {  // each posts the next one
    ++done;
    if (left > 1) thread.post([&chain, left] { chain(left - 1); });
  };
  thread.post([&chain] { chain(100); });
  go.count_down();
  owner.reset();
  CHECK(done == 200);
}

TEST_CASE("tasks posted by several threads all run, each thread's in its order") {
  constexpr size_t kPosters = 4;
  constexpr int kTasks = 500;
  std::vector<std::vector<int>> done(kPosters);
  {
    TaskThread thread;
    std::vector<std::jthread> posters;
    for (size_t p = 0; p < kPosters; ++p) {
      posters.emplace_back([&, p] {
        for (int i = 0; i < kTasks; ++i) thread.post([&done, p, i] { done[p].push_back(i); });
      });
    }
    posters.clear();  // joined before the TaskThread is destroyed
  }
  std::vector<int> expected(kTasks);
  std::iota(expected.begin(), expected.end(), 0);
  for (const auto& one : done) CHECK(one == expected);
}

TEST_CASE("a task is destroyed before the next one starts, and its destructor may post") {
  int done = 0;
  bool held = true;
  {
    TaskThread thread;
    const auto hold = [&](std::function<void()> at_end) {
      return std::shared_ptr<void>(nullptr, [at_end = std::move(at_end)](void*) { at_end(); });
    };
    thread.post([resource = hold([&] { held = false; })] {});
    thread.post([&] { done += !held; });
    thread.post([resource = hold([&] { thread.post([&] { ++done; }); })] {});
  }
  CHECK(done == 2);
}
