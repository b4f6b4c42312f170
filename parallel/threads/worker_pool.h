// A fixed set of threads that run one task together, again and again.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
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
  ~WorkerPool();  // waits for the rounds under way
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // A round: task(worker) in every thread, after what earlier rounds have for that thread. Returns at once.
  void start(Task task);

  // Returns when at most `under_way` rounds are not over, the latest ones: what the others wrote is then
  // visible here. If any thread threw in one of those, the exception of the first such round's
  // lowest-numbered worker is rethrown, and the pool can be used again.
  void wait(int under_way = 0);

  // start(task) and wait().
  void run(const Task& task);

 private:
  struct Round {
    Task task;
    int running = 0;                         // workers that are not done with it
    std::vector<std::exception_ptr> errors;  // one a worker; null: no error
  };

  void work(int worker);
  void await_round(uint64_t number);
  void join();

  std::mutex mutex_;
  std::condition_variable started_;            // a new round, or the end
  std::condition_variable finished_;           // the last worker of a round is done
  std::deque<std::shared_ptr<Round>> rounds_;  // not waited for yet, oldest first
  std::atomic<uint64_t> rounds_started_ = 0;   // written with the mutex held
  std::atomic<bool> stop_ = false;             // likewise
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
