#include <lockstep/parallel/collectives/gloo/posted_collectives.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/support/counted.h>

namespace lockstep {

std::string text_of(const PostedCollective& collective) {
  if (collective.call) return text_of(*collective.call);
  const auto from = collective.root < 0 ? "" : fmt::format(" from process {}", collective.root);
  return fmt::format("{} {}{} of {} {}", collective.name, collective.number, from,
                     with_commas(collective.elements), collective.type);
}

std::future<void> PostedCollectives::begin(const PostedCollective& collective) {
  std::promise<void> promise;
  auto done = promise.get_future();
  const std::lock_guard lock(mutex_);
  if (error_) {
    lost_any_ = true;
    promise.set_exception(error_);
  } else {
    entries_.emplace(collective.number, Entry{collective, std::move(promise)});
  }
  return done;
}

void PostedCollectives::finish(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(number);
  if (found == entries_.end()) return;
  found->second.promise.set_value();
  entries_.erase(found);
}

void PostedCollectives::preset_error(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!preset_error_) preset_error_ = error;
}

void PostedCollectives::fail(const std::exception_ptr& error) {
  const std::lock_guard lock(mutex_);
  if (!error_) {
    error_ = preset_error_ ? preset_error_ : error;
    failed_ = oldest(/*failed=*/true);
  }
  lost_any_ |= !entries_.empty();
  for (auto& entry : entries_) entry.second.promise.set_exception(error_);
  entries_.clear();
}

bool PostedCollectives::failed() const {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

bool PostedCollectives::lost_any() const {
  const std::lock_guard lock(mutex_);
  return lost_any_;
}

bool PostedCollectives::idle() const {
  const std::lock_guard lock(mutex_);
  return !error_ && entries_.empty();
}

std::optional<AwaitedCollective> PostedCollectives::awaited() const {
  const std::lock_guard lock(mutex_);
  return error_ ? failed_ : oldest(/*failed=*/false);
}

// The caller holds the mutex.
std::optional<AwaitedCollective> PostedCollectives::oldest(bool failed) const {
  if (entries_.empty()) return std::nullopt;
  return AwaitedCollective{.collective = entries_.begin()->second.collective,
                           .end = PostedCollective::Clock::now(),
                           .failed = failed};
}

}  // namespace lockstep
