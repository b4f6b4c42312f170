// A fixed set of threads that run one task together, again and again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lockstep {

// Used from one thread at a time. No torch in here, so that ThreadSanitizer can watch it.
class WorkerPool {
 public:
  using Task = std::function<void(int worker)>;

  // Starts `size` threads; each calls on_start(worker) before its first task. Returns when all have done so,
  // or rethrows what the lowest-numbered failing one threw, with no thread left behind.
  WorkerPool(int size, const Task& on_start);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Calls task(worker) in every thread and returns when all have returned: what they wrote is then visible
  // here. If any threw, the exception of the lowest-numbered one is rethrown, and the pool can be used again.
  void run(const Task& task);

 private:
  void work(int worker);
  void await_round(uint64_t seen);
  void join();

  std::mutex mutex_;
  std::condition_variable started_;   // a new round, or the end
  std::condition_variable finished_;  // the last worker of a round is done
  const Task* task_ = nullptr;        // the round's task, owned by run()'s caller
  std::atomic<uint64_t> round_ = 0;   // written with the mutex held
  int running_ = 0;
  std::atomic<bool> stop_ = false;          // likewise
  std::vector<std::exception_ptr> errors_;  // one a worker; null: no error
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
