#include <lockstep/app/bench/background_load.h>

#include <lockstep/app/report/timed_training.h>
#include <lockstep/parallel/threads/cpu_cores.h>

namespace lockstep {

Neighbours::Neighbours(const TrainPlan& plan, int count) {
  const auto allowed = allowed_cores();
  for (int i = 1; i <= count && !failure_; ++i) {
    const auto cores = cores_for_worker(allowed, i, count + 1, plan.trainer.threads);
    std::unique_lock lock(mutex_);
    busy_ = 1;  // until it is built
    try {
      threads_.emplace_back([this, &plan, cores] { live(plan, cores); });
    } catch (...) {  // no other thread: those there are have to end, or nobody would ever join them
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

Neighbours::~Neighbours() { set(State::kEnd); }

void Neighbours::run() { set(State::kRun); }

void Neighbours::rest() {
  set(State::kRest);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(failure_);
}

int64_t Neighbours::steps() const {
  const std::lock_guard lock(mutex_);
  return steps_;
}

void Neighbours::set(State state) {
  {
    const std::lock_guard lock(mutex_);
    state_ = state;
  }
  changed_.notify_all();
}

void Neighbours::live(const TrainPlan& plan, const std::vector<int>& cores) {
  std::exception_ptr failure;
  try {
    train(plan, cores);
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

void Neighbours::train(const TrainPlan& plan, const std::vector<int>& cores) {
  keep_to_cores(cores);  // the replica's own thread inherits them
  TimedTraining training(plan);
  training.seconds_per_step(kWarmUpSteps);
  while (true) {
    {
      std::unique_lock lock(mutex_);
      --busy_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return state_ != State::kRest; });
      if (state_ == State::kEnd) return;
      ++busy_;
    }
    training.seconds_per_step(1);
    const std::lock_guard lock(mutex_);
    ++steps_;
  }
}

}  // namespace lockstep
