// Trainings beside a measured one. They keep the machine's other cores, and the memory that all cores share,
// as busy as they are when every core has a replica.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// `count` trainings of a plan for one CPU replica, each on cores of its own. The first plan.trainer.threads
// cores of this process are left to the measured replica. The trainings pause until run().
class BackgroundLoad {
 public:
  // Builds and warms up one training after another. plan: kept by reference. Rethrows a training's error.
  BackgroundLoad(const TrainPlan& plan, int count);
  ~BackgroundLoad();

  void run();    // starts all trainings
  void pause();  // returns when all have finished their current step; rethrows a training's error

  int64_t steps() const;  // of all trainings together, without the warm-up

  BackgroundLoad(const BackgroundLoad&) = delete;
  BackgroundLoad& operator=(const BackgroundLoad&) = delete;

 private:
  enum class State { kPause, kRun, kEnd };

  void train(const TrainPlan& plan, const std::vector<int>& cores);       // body of a thread; keeps an error
  void take_steps(const TrainPlan& plan, const std::vector<int>& cores);  // returns after kEnd
  void set(State state);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  State state_ = State::kPause;
  int busy_ = 0;  // trainings that are being built or are in a step
  int64_t steps_ = 0;
  std::exception_ptr failure_;
  std::vector<std::jthread> threads_;
};

}  // namespace lockstep
