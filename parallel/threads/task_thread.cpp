#include <lockstep/parallel/threads/task_thread.h>

#include <utility>

#include <lockstep/support/start_thread.h>

namespace lockstep {

TaskThread::TaskThread(Task on_start)
    : thread_(start_thread([this, on_start = std::move(on_start)] { work(on_start); })) {}

TaskThread::~TaskThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void TaskThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void TaskThread::work(const Task& on_start) {
  on_start();
  for (std::unique_lock lock(mutex_);;) {
    changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const Task task = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      task();
    }  // destroys the task without the lock: its destructor may post
    lock.lock();
  }
}

}  // namespace lockstep
