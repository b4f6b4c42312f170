// When the system cannot start another thread, each kind of thread reports it, and a later attempt works.
#include <lockstep/tests/catch.h>
#include <memory>

#include <lockstep/data/ordered_tasks.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/threads/worker_pool.h>
#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>
#include <lockstep/tests/support/no_threads.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;
using lockstep::testing::NoThreads;

#ifndef __SANITIZE_THREAD__  // it starts threads with its own attributes
TEST_CASE("a thread that cannot start is a MemoryError with a hint") {
  {
    const NoThreads none;
    try {
      start_thread([] {});
      FAIL("it started");
    } catch (const MemoryError& error) {
      CHECK_THAT(error.message(), ContainsSubstring("the system cannot start another thread: "));
      CHECK_THAT(error.hint(), ContainsSubstring("fewer replicas or fewer threads"));
    }
    CHECK_THROWS_WITH(check_threads_available(3),
                      ContainsSubstring("3 more threads are needed, the system starts only 0: "));
    CHECK_THROWS_AS(WorkerPool(2, [](int) {}), MemoryError);
    CHECK_THROWS_AS(TaskThread(), MemoryError);
    OrderedTasks tasks(2);
    CHECK_THROWS_AS(tasks.post([](int, const std::stop_token&) {}), MemoryError);
  }
  check_threads_available(3);
  WorkerPool(2, [](int) {}).run([](int) {});
}
#endif
