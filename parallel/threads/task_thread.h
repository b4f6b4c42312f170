// One thread that does what it is given, in that order.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

// Asleep while there is nothing to do. No torch in here, so that ThreadSanitizer can watch it.
class TaskThread {
 public:
  using Task = std::function<void()>;

  // Starts the thread, which calls on_start() first of all. Neither on_start nor a task may throw.
  explicit TaskThread(Task on_start = [] {});
  // Does what is still queued, then ends the thread.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Queues a task and returns at once. From any thread, a task's own too.
  void post(Task task);

 private:
  void work(const Task& on_start);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stop_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace lockstep
