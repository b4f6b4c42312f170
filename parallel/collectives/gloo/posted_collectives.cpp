#include <lockstep/parallel/collectives/gloo/posted_collectives.h>

#include <utility>

namespace lockstep {

std::future<void> PostedCollectives::begin(uint64_t number) {
  std::promise<void> promise;
  auto done = promise.get_future();
  const std::lock_guard lock(mutex_);
  if (error_) {
    promise.set_exception(error_);
  } else {
    promises_.emplace(number, std::move(promise));
  }
  return done;
}

void PostedCollectives::finish(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = promises_.find(number);
  if (found == promises_.end()) return;
  found->second.set_value();
  promises_.erase(found);
}

void PostedCollectives::fail(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
  for (auto& entry : promises_) entry.second.set_exception(error_);
  promises_.clear();
}

bool PostedCollectives::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

bool PostedCollectives::idle() const {
  const std::lock_guard lock(mutex_);
  return !error_ && promises_.empty();
}

}  // namespace lockstep
