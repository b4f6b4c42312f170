// A fixed set of threads that run tasks together, one round after another.
#pragma once

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

// Not thread-safe: call it from one thread at a time, which is none of its own: a worker that calls start(),
// wait() or run() gets a UsageError. Contains no torch, so ThreadSanitizer can check it.
class WorkerPool {
 public:
  using Task = std::function<void(int worker)>;

  // Starts `size` threads; each calls on_start(worker) first. Returns when all have done so. If any threw,
  // all threads end and the exception of the lowest-numbered one is rethrown. Throws MemoryError if the
  // system cannot start a thread.
  WorkerPool(int size, const Task& on_start);
  ~WorkerPool();  // waits for the rounds in flight
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int size() const { return static_cast<int>(threads_.size()); }

  // Starts a round and returns at once. Every thread runs task(worker) after its part of the earlier rounds.
  void start(Task task);

  // Waits until at most the `in_flight` latest rounds are unfinished; what the finished ones wrote is then
  // visible here. If a worker threw in one of them, rethrows the exception of the first such round's
  // lowest-numbered worker; the pool can be used again. While it waits it calls watch() several times a
  // second; watch may be empty, and must not throw.
  void wait(int in_flight = 0, const std::function<void()>& watch = {});

  // start(task) and wait().
  void run(const Task& task);

 private:
  struct Round {
    Task task;
    int running = 0;                         // workers that have not finished the round
    std::vector<std::exception_ptr> errors;  // one per worker; null: no error
  };

  void work(int worker);
  void join();
  void require_other_thread() const;

  std::mutex mutex_;
  std::condition_variable started_;            // a new round, or the end
  std::condition_variable finished_;           // the last worker of a round is done
  std::deque<std::shared_ptr<Round>> rounds_;  // not waited for yet, oldest first
  uint64_t rounds_started_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace lockstep
