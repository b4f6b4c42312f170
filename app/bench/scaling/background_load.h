// Trainings beside a measured one. They keep the machine's other cores, and the memory that all cores share,
// as busy as they are when every core has a replica.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <lockstep/app/report/timed_training.h>
#include <lockstep/app/train/plan/plan.h>
#include <lockstep/parallel/threads/worker_pool.h>

namespace lockstep {

// `count` trainings of a plan for one CPU replica, each on cores of its own. The first plan.trainer.threads
// cores of this process are left to the measured replica. The trainings pause until run().
class BackgroundLoad {
 public:
  // Builds and warms up one training after another. plan: kept by reference. Rethrows a training's error.
  BackgroundLoad(const TrainPlan& plan, int count);
  ~BackgroundLoad() { running_ = false; }

  void run();    // starts all trainings
  void pause();  // returns when all have finished their current step; rethrows a training's error

  int64_t steps() const { return steps_; }  // of all trainings together, without the warm-up

 private:
  std::vector<std::unique_ptr<TimedTraining>> trainings_;
  std::mutex building_;
  std::atomic<bool> running_ = false;
  std::atomic<int64_t> steps_ = 0;
  WorkerPool threads_;  // last: it uses the members above
};

}  // namespace lockstep
