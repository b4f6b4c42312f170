#include <lockstep/data/ordered_tasks.h>

#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>

namespace lockstep {
namespace {

cpu_set_t allowed_here() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  ::sched_getaffinity(0, sizeof(cores), &cores);
  return cores;
}

}  // namespace

OrderedTasks::OrderedTasks(int threads) : count_(static_cast<size_t>(threads)), cores_(allowed_here()) {}

OrderedTasks::~OrderedTasks() {
  stop_.request_stop();
  for (auto& thread : threads_) thread.join();
}

// Holds the mutex.
void OrderedTasks::start() {
  if (!threads_.empty()) return;
  threads_.reserve(count_);
  try {
    for (size_t i = 0; i < count_; ++i) {
      threads_.push_back(start_thread([this, i] { run(static_cast<int>(i)); }));
    }
  } catch (const MemoryError&) {
    if (threads_.empty()) throw;
  }
}

void OrderedTasks::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    start();
    entries_.push_back({.task = std::move(task)});
  }
  posted_.notify_one();
}

void OrderedTasks::wait() {
  if (failed_) std::rethrow_exception(failed_);
  std::unique_lock lock(mutex_);
  if (entries_.empty()) throw UsageError("there is no task to wait for", "post one first");
  done_.wait(lock, [&] { return entries_.front().done; });
  failed_ = entries_.front().error;
  entries_.pop_front();
  --begun_;
  lock.unlock();
  if (failed_) std::rethrow_exception(failed_);
}

void OrderedTasks::forget_done() {
  const std::lock_guard lock(mutex_);
  for (; !entries_.empty() && entries_.front().done; --begun_) entries_.pop_front();
}

void OrderedTasks::run(int thread) {
  if (CPU_COUNT(&cores_) > 0) ::sched_setaffinity(0, sizeof(cores_), &cores_);
  const auto stop = stop_.get_token();
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
    entry.error = std::move(error);
    entry.done = true;
    done_.notify_one();
  }
}

}  // namespace lockstep
