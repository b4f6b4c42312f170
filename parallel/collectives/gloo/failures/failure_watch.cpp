#include <lockstep/parallel/collectives/gloo/failures/failure_watch.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/parallel/collectives/gloo/failures/watch_thread.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/support/error.h>
#include <lockstep/support/start_thread.h>

namespace lockstep {
namespace {

// Its sentence, on one line, and exit code.
FailureReport report_of_error(const std::exception_ptr& thrown) {
  FailureReport report{.code = static_cast<int>(ExitCode::kFailed)};
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    report.text = error.message();
    report.code = static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    report.text = error.what();
  } catch (...) {
    report.text = "an exception of an unknown type";
  }
  std::replace(report.text.begin(), report.text.end(), '\n', ' ');
  report.kind = kind_of_end(report.code);
  return report;
}

// Waits until all is told and learnt. If the store gives no answer for too long it is lost.
void await_conclusion(WatchState& state, std::unique_lock<std::mutex>& lock) {
  const auto concluded = [&] { return state.phase == WatchPhase::kConcluded; };
  while (!concluded() && !state.lost) {
    state.changed.wait_until(lock, state.heard + state.options.limits.answer);
    state.lost |= !concluded() && WatchClock::now() >= state.heard + state.options.limits.answer;
  }
}

}  // namespace

FailureWatch::FailureWatch(FailureBoard board, WatchOptions options)
    : state_(std::make_shared<WatchState>(std::move(options))) {
  const auto work = [state = state_, its_board = std::make_shared<FailureBoard>(std::move(board))] {
    block_sigpipe();
    bool lost = false;
    try {
      watch_failures(*its_board, *state);
    } catch (const std::exception&) {  // c10d's
      lost = true;
    }
    const std::lock_guard lock(state->mutex);
    state->lost |= lost;
    state->ended = true;
    state->changed.notify_all();
  };
  thread_ = start_thread(work);
}

FailureWatch::~FailureWatch() {
  std::unique_lock lock(state_->mutex);
  if (state_->phase >= WatchPhase::kAlarmed && state_->options.serves_store) await_conclusion(*state_, lock);
  state_->stopped = true;
  state_->changed.notify_all();
  if (!state_->lost)
    state_->changed.wait_for(lock, state_->options.limits.answer, [this] { return state_->ended; });
  const bool ended = state_->ended;
  lock.unlock();
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();  // it waits for the store
  }
}

void FailureWatch::add(const std::string& channel, std::shared_ptr<PostedCollectives> posted,
                       ChannelKind kind) {
  const std::lock_guard lock(state_->mutex);
  if (state_->phase >= WatchPhase::kEndsWaits) posted->fail(std::make_exception_ptr(peer_failed_error()));
  state_->channels.push_back({channel, std::move(posted), kind});
}

bool FailureWatch::ends_waits() const {
  const std::lock_guard lock(state_->mutex);
  return state_->phase >= WatchPhase::kEndsWaits;
}

void FailureWatch::leave() {
  const std::lock_guard lock(state_->mutex);
  state_->own = FailureReport{.process = state_->options.process, .kind = ReportKind::kLeft};
  state_->own_is_new = true;
  state_->changed.notify_all();
}

std::exception_ptr FailureWatch::explain(const std::exception_ptr& error, const std::string& name) noexcept
    try {
  auto report = report_of_error(error);
  const bool lost_a_peer = report.kind == ReportKind::kWaits;
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->explained, true)) return error;
  if (lost_a_peer) {
    auto waits = report_of_channels(*state_);
    waits.kind = report.kind;
    waits.text = std::move(report.text);
    waits.code = report.code;
    report = std::move(waits);
  }
  report.process = state_->options.process;
  report.name = name;
  state_->reports[static_cast<size_t>(report.process)] = report;
  state_->own = std::move(report);
  state_->own_is_new = true;
  state_->heard = WatchClock::now();
  state_->changed.notify_all();
  await_conclusion(*state_, lock);
  if (!lost_a_peer) return error;
  auto status = state_->options.store;
  status.answers = false;
  const auto verdict =
      state_->verdict ? *state_->verdict : judge(state_->reports, state_->options.processes, status);
  return std::make_exception_ptr(PeerError(verdict.text, verdict.hint));
} catch (...) {  // the system has no memory: the error says less, but stays
  return error;
}

}  // namespace lockstep
