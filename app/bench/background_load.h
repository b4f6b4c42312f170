// Trainings that nobody waits for: they keep a machine's other cores, and the memory that all cores share, as
// busy as they are when every core has a replica.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <lockstep/app/train/plan.h>

namespace lockstep {

// `count` trainings of a plan for one replica on a processor, each on cores of its own: those behind the
// first plan.trainer.threads that this process may use, which are the measured replica's. They rest until
// run().
class Neighbours {
 public:
  // Builds them, one after the other, and warms each up. plan: kept by reference. Throws what that throws.
  Neighbours(const TrainPlan& plan, int count);
  ~Neighbours();

  void run();   // from now on each takes step after step
  void rest();  // returns when all have finished the step they were in; throws what one of them has thrown

  int64_t steps() const;  // that all of them have taken, after the warm-up

  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

 private:
  enum class State { kRest, kRun, kEnd };

  void live(const TrainPlan& plan,
            const std::vector<int>& cores);  // of a thread: trains, keeps what it throws
  void train(const TrainPlan& plan, const std::vector<int>& cores);  // until the end
  void set(State state);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kRest;
  int busy_ = 0;  // are being built, or are in a step
  int64_t steps_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep
