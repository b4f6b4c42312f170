#include <lockstep/app/bench/scaling/background_load.h>

#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {

BackgroundLoad::BackgroundLoad(const TrainPlan& plan, int count)
    : trainings_(static_cast<size_t>(count)), threads_(count, [&](int i) {
        const std::lock_guard one_after_another(building_);
        // The replica's own thread inherits the cores.
        pin_to_cores(cores_for_worker(allowed_cores(), i + 1, count + 1, replica_threads(plan.trainer)));
        auto& training = trainings_[static_cast<size_t>(i)];
        training = std::make_unique<TimedTraining>(plan);
        training->take_steps(kWarmUpSteps);
      }) {}

void BackgroundLoad::run() {
  running_ = true;
  threads_.start([this](int i) {
    for (; running_; ++steps_) trainings_[static_cast<size_t>(i)]->take_steps(1);
  });
}

void BackgroundLoad::pause() {
  running_ = false;
  threads_.wait();
}

}  // namespace lockstep
