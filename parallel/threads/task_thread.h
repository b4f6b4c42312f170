// One thread that runs tasks in the order in which they were posted.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

// The thread sleeps while there are no tasks. Contains no torch, so ThreadSanitizer can check it.
class TaskThread {
 public:
  using Task = std::function<void()>;

  // Starts the thread, which first calls on_start(). Neither on_start nor a task may throw. Throws
  // MemoryError if the system cannot start a thread.
  explicit TaskThread(Task on_start = [] {});
  // Runs the queued tasks, then ends the thread.
  ~TaskThread();
  TaskThread(const TaskThread&) = delete;
  TaskThread& operator=(const TaskThread&) = delete;

  // Queues a task and returns at once. Thread-safe; a task may post further tasks.
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
