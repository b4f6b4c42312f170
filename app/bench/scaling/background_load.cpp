#include <lockstep/app/bench/scaling/background_load.h>

#include <lockstep/app/report/timed_training.h>
#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {

BackgroundLoad::BackgroundLoad(const TrainPlan& plan, int count) {
  const auto allowed = allowed_cores();
  for (int i = 1; i <= count && !failure_; ++i) {
    const auto cores = cores_for_worker(allowed, i, count + 1, replica_threads(plan.trainer));
    std::unique_lock lock(mutex_);
    busy_ = 1;  // until it is built
    try {
      threads_.emplace_back([this, &plan, cores] { train(plan, cores); });
    } catch (...) {  // the threads that exist must end before they are joined
      failure_ = std::current_exception();
      break;
    }
    changed_.wait(lock, [&] { return busy_ == 0; });
  }
  if (!failure_) return;
  set(State::kEnd);
  threads_.clear();
  std::rethrow_exception(failure_);
}

BackgroundLoad::~BackgroundLoad() { set(State::kEnd); }

void BackgroundLoad::run() { set(State::kRun); }

void BackgroundLoad::pause() {
  set(State::kPause);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

int64_t BackgroundLoad::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

void BackgroundLoad::set(State state) {
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }
  changed_.notify_all();
}

void BackgroundLoad::train(const TrainPlan& plan, const std::vector<int>& cores) {
  std::exception_ptr failure;
  try {
    take_steps(plan, cores);
  } catch (...) {
    failure = std::current_exception();
  }
  if (!failure) return;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    --busy_;
  }
  changed_.notify_all();
}

void BackgroundLoad::take_steps(const TrainPlan& plan, const std::vector<int>& cores) {
  pin_to_cores(cores);  // the replica's own thread inherits them
  TimedTraining training(plan);
  training.seconds_per_step(kWarmUpSteps);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      --busy_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return state_ != State::kPause; });
      if (state_ == State::kEnd) return;
      ++busy_;
    }
    training.seconds_per_step(1);
    const std::lock_guard lock(mutex_);
    ++steps_;
  }
}

}  // namespace lockstep
