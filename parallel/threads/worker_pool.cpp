#include <lockstep/parallel/threads/worker_pool.h>

#include <chrono>
#include <utility>

#include <lockstep/parallel/threads/start_thread.h>

namespace lockstep {

WorkerPool::WorkerPool(int size, const Task& on_start) {
  threads_.reserve(static_cast<size_t>(size));
  try {
    for (int worker = 0; worker < size; ++worker)
      threads_.push_back(start_thread([this, worker] { work(worker); }));
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

void WorkerPool::start(Task task) {
  auto round = std::make_shared<Round>();
  round->task = std::move(task);
  round->running = size();
  round->errors.resize(threads_.size());
  {
    const std::lock_guard lock(mutex_);
    rounds_.push_back(std::move(round));
    ++rounds_started_;
  }
  started_.notify_all();
}

void WorkerPool::wait(int under_way) {
  std::exception_ptr first;
  for (std::unique_lock lock(mutex_); rounds_.size() > static_cast<size_t>(under_way);) {
    finished_.wait(lock, [this] { return rounds_.front()->running == 0; });
    for (const auto& error : rounds_.front()->errors) {
      if (error && !first) first = error;
    }
    rounds_.pop_front();
  }
  if (first) std::rethrow_exception(first);
}

void WorkerPool::run(const Task& task) {
  start(task);
  wait();
}

// A step is a few rounds in close succession, and to wake a core that has gone to sleep can take longer than
// what the next round does. So a worker stays awake for a moment, giving way to any other thread, before it
// sleeps.
void WorkerPool::await_round(uint64_t number) {
  constexpr auto kAwake = std::chrono::milliseconds(2);
  const auto deadline = std::chrono::steady_clock::now() + kAwake;
  while (!stop_ && rounds_started_ < number && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::yield();
  }
}

void WorkerPool::work(int worker) {
  for (uint64_t number = 1;; ++number) {  // of the round
    await_round(number);
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return stop_ || rounds_started_ >= number; });
    if (rounds_started_ < number) return;
    // Rounds that this worker is not done with are all still in the list, at its end.
    const auto round = rounds_[rounds_.size() - 1 - (rounds_started_ - number)];
    lock.unlock();
    std::exception_ptr error;
    try {
      round->task(worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    round->errors[static_cast<size_t>(worker)] = error;
    if (--round->running == 0) finished_.notify_one();
  }
}

}  // namespace lockstep
