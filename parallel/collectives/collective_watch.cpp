#include <lockstep/parallel/collectives/collective_watch.h>

#include <fmt/format.h>

#include <utility>

#include <lockstep/support/start_thread.h>

namespace lockstep {
namespace {

// Far below any timeout, far above the cost of a check.
constexpr std::chrono::milliseconds kInterval{50};

}  // namespace

CollectiveWatch::CollectiveWatch(std::chrono::milliseconds timeout, std::string hint,
                                 std::function<void()> end_all)
    : timeout_(timeout),
      hint_(std::move(hint)),
      end_all_(std::move(end_all)),
      thread_(start_thread([this] { work(); })) {}

CollectiveWatch::~CollectiveWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CollectiveWatch::add(Operation operation) {
  {
    const std::lock_guard lock(mutex_);
    operations_.push_back(std::move(operation));
  }
  changed_.notify_one();
}

void CollectiveWatch::abort(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    if (error_) return;
    error_ = std::move(error);
    operations_.clear();
  }
  end_all_();
}

std::exception_ptr CollectiveWatch::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool CollectiveWatch::is_idle() {
  std::exception_ptr problem;
  {
    const std::lock_guard lock(mutex_);
    if (error_) return false;
    problem = find_problem();
    if (!problem) return operations_.empty();
  }
  abort(problem);
  return false;
}

void CollectiveWatch::work() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    if (operations_.empty()) {
      changed_.wait(lock, [this] { return stop_ || !operations_.empty(); });
      continue;
    }
    changed_.wait_for(lock, kInterval, [this] { return stop_; });
    if (const auto problem = find_problem()) {
      lock.unlock();
      abort(problem);
      lock.lock();
    }
  }
}

// Removes finished operations. Returns the error of a failed or overdue one; null if there is none. The
// caller holds the mutex.
std::exception_ptr CollectiveWatch::find_problem() try {
  std::erase_if(operations_, [](const Operation& operation) { return operation.end->query(); });
  for (const auto& operation : operations_) {
    if (const auto words = operation.failure(); !words.empty()) {
      return std::make_exception_ptr(failed(operation, words));
    }
    if (late(operation)) return std::make_exception_ptr(overdue(operation));
  }
  return nullptr;
} catch (...) {  // a failed GPU reports its error to the next call that asks it
  return std::current_exception();
}

PeerError CollectiveWatch::failed(const Operation& operation, const std::string& words) const {
  return PeerError(fmt::format("{} failed: {}", operation.what, words), hint_);
}

PeerError CollectiveWatch::overdue(const Operation& operation) const {
  return PeerError(fmt::format("{} did not finish within {} s: another replica did not take part",
                               operation.what, timeout_seconds()),
                   hint_);
}

}  // namespace lockstep
