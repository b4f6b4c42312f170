#include <lockstep/parallel/worker_pool.h>

#include <chrono>

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

// A step is a few rounds in close succession, and to wake a core that has gone to sleep can take longer than
// what the next round does. So a worker stays awake for a moment, giving way to any other thread, before it
// sleeps.
void WorkerPool::await_round(uint64_t seen) {
  constexpr auto kAwake = std::chrono::milliseconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kAwake;
  while (!stop_ && round_ == seen && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
}

void WorkerPool::work(int worker) {
  for (uint64_t seen = 0;;) {
    await_round(seen);
    std::unique_lock lock(mutex_);
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
