// Threads that work ahead: tasks start and are waited for in the order in which they were posted. The first
// task starts the threads, which may run on the cores that were allowed where this was built.
#pragma once

#include <sched.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace lockstep {

// Wait in one thread, which also posts; or post in any, and never wait.
class OrderedTasks {
 public:
  // thread: 0 .. threads - 1. A task that is told to stop should return soon: nobody waits for its result.
  using Task = std::function<void(int thread, const std::stop_token& stop)>;

  explicit OrderedTasks(int threads);
  ~OrderedTasks();  // tells the tasks that run to stop, and waits for them; others never start
  OrderedTasks(const OrderedTasks&) = delete;
  OrderedTasks& operator=(const OrderedTasks&) = delete;

  // Goes on with fewer threads where the system cannot start more. Throws MemoryError, and posts nothing, if
  // there is none.
  void post(Task task);

  // Waits for the oldest task that was not waited for, and throws its exception: from then on each call
  // throws that one again. Throws UsageError if there is no such task.
  void wait();

  // Forgets the oldest tasks that are done, for callers that never wait: their tasks keep results and errors
  // themselves.
  void forget_done();

 private:
  struct Entry {
    Task task;
    bool done = false;
    std::exception_ptr error = {};
  };

  void start();
  void run(int thread);

  const size_t count_;     // of threads
  const cpu_set_t cores_;  // of the thread that has built this: another may be pinned
  std::stop_source stop_;
  std::mutex mutex_;
  std::condition_variable_any posted_;
  std::condition_variable done_;
  std::deque<Entry> entries_;         // those that were not waited for
  size_t begun_ = 0;                  // of entries_
  std::exception_ptr failed_;         // that wait() has thrown; only its thread uses it
  std::vector<std::thread> threads_;  // those that have started, under the mutex
};

}  // namespace lockstep
