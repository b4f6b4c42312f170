#include <lockstep/data/ordered_tasks.h>

#include <utility>

namespace lockstep {

OrderedTasks::OrderedTasks(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this, i](const std::stop_token& stop) { run(i, stop); });
  }
}

OrderedTasks::~OrderedTasks() {
  for (auto& thread : threads_) thread.request_stop();
  threads_.clear();  // waits
}

void OrderedTasks::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    entries_.push_back({.task = std::move(task)});
  }
  posted_.notify_one();
}

void OrderedTasks::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return entries_.front().done; });
  const auto error = entries_.front().error;
  entries_.pop_front();
  --begun_;
  lock.unlock();
  if (error) std::rethrow_exception(error);
}

void OrderedTasks::run(int thread, const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (posted_.wait(lock, stop, [&] { return begun_ < entries_.size(); }) && !stop.stop_requested()) {
    auto& entry = entries_[begun_++];  // stays where it is: a deque changes at its ends only
    lock.unlock();
    std::exception_ptr error;
    try {
      entry.task(thread, stop);
    } catch (...) {
      error = std::current_exception();
    }
    entry.task = nullptr;
    lock.lock();
    entry.error = error;
    entry.done = true;
    done_.notify_one();
  }
}

}  // namespace lockstep
