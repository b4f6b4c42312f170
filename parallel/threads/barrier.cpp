#include <lockstep/parallel/threads/barrier.h>

namespace lockstep {

void Barrier::arrive_and_wait() {
  std::unique_lock lock(mutex_);
  if (!error_) {
    const auto round = round_;
    if (++arrived_ == parties_) {
      arrived_ = 0;
      ++round_;
      opened_.notify_all();
      return;
    }
    opened_.wait(lock, [&] { return round_ != round || error_; });
    if (round_ != round) return;  // all had arrived before the error
  }
  std::rethrow_exception(error_);
}

void Barrier::abort(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = std::move(error);
  opened_.notify_all();
}

std::exception_ptr Barrier::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

}  // namespace lockstep
