#include <lockstep/parallel/threads/worker_pool.h>

#include <chrono>
#include <utility>

#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds kWatchInterval{100};

thread_local const WorkerPool* own_pool = nullptr;  // whose worker the thread is

}  // namespace

WorkerPool::WorkerPool(int size, const Task& on_start) {
  threads_.reserve(static_cast<size_t>(size));
  try {
    for (int worker = 0; worker < size; ++worker)
      threads_.push_back(start_thread([this, worker] { work(worker); }));
    run(on_start);  // the first round
  } catch (...) {
    join();  // the destructor does not run for a half-constructed pool
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

// A worker would wait for itself for ever.
void WorkerPool::require_other_thread() const {
  if (own_pool != this) return;
  throw UsageError(
      "a function that the replicas run has called for their next task, which waits for that function",
      "return from it first: steps, evaluations, take_sums(), run() and the like are called one after the "
      "other, never within each other");
}

void WorkerPool::start(Task task) {
  require_other_thread();
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

void WorkerPool::wait(int in_flight, const std::function<void()>& watch) {
  require_other_thread();
  const auto finished = [this] { return rounds_.front()->running == 0; };
  std::exception_ptr first;
  for (std::unique_lock lock(mutex_); rounds_.size() > static_cast<size_t>(in_flight);) {
    while (watch && !finished_.wait_for(lock, kWatchInterval, finished)) {
      lock.unlock();
      watch();
      lock.lock();
    }
    finished_.wait(lock, finished);
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

void WorkerPool::work(int worker) {
  own_pool = this;
  for (uint64_t number = 1;; ++number) {  // number of the round
    std::unique_lock lock(mutex_);
    started_.wait(lock, [&] { return stop_ || rounds_started_ >= number; });
    if (rounds_started_ < number) return;
    // The list ends with the rounds that this worker has not finished.
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
