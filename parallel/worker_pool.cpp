#include <lockstep/parallel/worker_pool.h>

namespace lockstep {

WorkerPool::WorkerPool(int size, const Task& on_start) : errors_(static_cast<size_t>(size)) {
  threads_.reserve(errors_.size());
  try {
    for (int worker = 0; worker < size; ++worker) threads_.emplace_back([this, worker] { work(worker); });
    run(on_start);  // the first round
  } catch (...) {
    join();  // the destructor of a half-made pool would not run
    throw;
  }
}

WorkerPool::~WorkerPool() { join(); }

void WorkerPool::join() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  started_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void WorkerPool::run(const Task& task) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  running_ = size();
  ++round_;
  started_.notify_all();
  finished_.wait(lock, [this] { return running_ == 0; });
  task_ = nullptr;

  std::exception_ptr first;
  for (auto& error : errors_) {
    if (error && !first) first = error;
    error = nullptr;
  }
  if (first) std::rethrow_exception(first);
}

void WorkerPool::work(int worker) {
  std::unique_lock lock(mutex_);
  for (uint64_t seen = 0;;) {
    started_.wait(lock, [&] { return stop_ || round_ != seen; });
    if (stop_) return;
    seen = round_;
    const Task& task = *task_;
    lock.unlock();
    std::exception_ptr error;
    try {
      task(worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    errors_[static_cast<size_t>(worker)] = error;
    if (--running_ == 0) finished_.notify_one();
  }
}

}  // namespace lockstep
