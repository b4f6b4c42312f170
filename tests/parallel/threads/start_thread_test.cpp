// When the system cannot start another thread, each kind of thread reports it, and a later attempt works.
#include <pthread.h>

#include <lockstep/tests/catch.h>
#include <memory>

#include <lockstep/data/ordered_tasks.h>
#include <lockstep/parallel/threads/task_thread.h>
#include <lockstep/parallel/threads/worker_pool.h>
#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

// While it lives, the default stack size exceeds the address space, so that no thread can start.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&usual_);
    pthread_attr_t huge = usual_;
    pthread_attr_setstacksize(&huge, size_t{1} << 48);
    pthread_setattr_default_np(&huge);
  }
  ~NoThreads() { pthread_setattr_default_np(&usual_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t usual_;
};

}  // namespace

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
