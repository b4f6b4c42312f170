#include <lockstep/parallel/collectives/gloo/failure_watch.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>

#include <lockstep/parallel/collectives/gloo/call_within.h>
#include <lockstep/parallel/collectives/gloo/messages.h>
#include <lockstep/parallel/threads/start_thread.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using WatchClock = std::chrono::steady_clock;

constexpr milliseconds kBriefPause{50};  // while reports come in
constexpr int kLooksInLimit = 4;         // that every process takes within the grace and the silence

}  // namespace

// What a watch and its thread share.
struct WatchState {
  explicit WatchState(WatchOptions its_options)
      : options(std::move(its_options)), reports(options.processes.size()) {}

  struct WatchedChannel {
    std::string name;
    std::shared_ptr<PostedCollectives> posted;
    ChannelKind kind;
  };

  const WatchOptions options;

  mutable std::mutex mutex;
  std::condition_variable changed;
  // The rest is guarded by the mutex.
  std::vector<WatchedChannel> channels = {};
  std::optional<FailureReport> own = {};  // given by leave() or explain()
  bool own_is_new = false;                // the thread has not seen it
  bool explained = false;
  bool stopped = false;    // the watch goes away
  FailureReports reports;  // as far as they are known
  std::optional<Verdict> verdict = {};
  WatchClock::time_point heard = WatchClock::now();  // the store's last answer
  bool alarmed = false;
  bool ends_channels = false;  // those that are there, and those to come
  bool settled = false;        // all is told and learnt
  bool lost = false;           // the store
  bool ended = false;          // the thread
};

namespace {

// Of two collectives that have not ended, whether the first says more: the one that failed first; else the
// one that has waited longer.
bool says_more(const AwaitedCollective& a, const AwaitedCollective& b) {
  if (a.failed != b.failed) return a.failed;
  return a.failed ? a.end < b.end : a.collective.begin < b.collective.begin;
}

// What this process does, seen from its channels.
FailureReport report_of_channels(const std::vector<WatchState::WatchedChannel>& channels) {
  FailureReport report;
  std::optional<AwaitedCollective> best;
  for (const auto& each : channels) {
    const auto awaited = each.posted->awaited();
    if (!awaited || (best && !says_more(*awaited, *best))) continue;
    best = awaited;
    report.channel = each.name;
  }
  if (!best) return report;
  report.kind = ReportKind::kWaits;
  report.collective = text_of(best->collective);
  report.number = best->collective.number;
  report.seconds = std::chrono::duration<double>(best->end - best->collective.begin).count();
  return report;
}

// Its sentence and exit code.
FailureReport report_of_error(const std::exception_ptr& thrown) {
  FailureReport report{.kind = ReportKind::kError, .code = static_cast<int>(ExitCode::kFailed)};
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    report.text = error.what();
    report.code = static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    report.text = error.what();
  } catch (...) {
    report.text = "an exception of an unknown type";
  }
  return report;
}

bool has_own_error(const FailureReports& reports) {
  return std::any_of(reports.begin(), reports.end(),
                     [](const auto& report) { return report && report->kind == ReportKind::kError; });
}

// The part of the watch that runs in its thread. Only it uses the board.
class WatchThread {
 public:
  WatchThread(FailureBoard& board, WatchState& state) : board_(board), state_(state) {}

  // Returns when the watch goes away, or when all is told and learnt. Throws when the store is lost.
  void run() {
    while (!look()) {
      if (!pause(time_between_looks())) return publish_own();  // it may have left just now
    }
    settle();
  }

 private:
  // One store answers all processes.
  milliseconds time_between_looks() const {
    return std::max(limits_.look, milliseconds(state_.options.processes.size()));
  }

  // At least `limit`, and long enough for looks of all processes.
  milliseconds long_enough(milliseconds limit) const {
    return limit.count() == 0 ? limit : std::max(limit, kLooksInLimit * time_between_looks());
  }

  // Whether a process cannot go on.
  bool look() {
    publish_own();
    const bool alarmed = board_.alarmed();
    const auto& reports = board_.reports();  // of those that were done, and have left
    note([&] {
      state_.alarmed = alarmed;
      take(reports);
    });
    if (alarmed) return true;
    if (!next_is_silent() || !waits_in_store()) return false;
    publish(report_now());
    note([&] { state_.alarmed = true; });
    return true;
  }

  // Gives a sign of life, and looks for one of the next process.
  bool next_is_silent() {
    const auto now = WatchClock::now();
    if (now >= next_beat_) {
      next_beat_ = now + limits_.beat;
      board_.beat();
      const auto beats = board_.beats(next_);
      if (beats != std::exchange(beats_, beats)) heard_next_ = now;
      note([] {});
    }
    return now >= heard_next_ + long_enough(limits_.silence);
  }

  bool waits_in_store() const {
    const std::lock_guard lock(state_.mutex);
    return std::any_of(state_.channels.begin(), state_.channels.end(), [](const auto& each) {
      return each.kind == ChannelKind::kStore && each.posted->awaited();
    });
  }

  void settle() {
    const auto begin = WatchClock::now();
    const auto grace = long_enough(limits_.grace);
    if (!published_) publish(report_now());
    end_channels();
    while (!needs_nothing() && !judged(WatchClock::now() >= begin + grace)) {
      if (!pause(kBriefPause)) return;
      publish_own();
    }
    board_.leave();
    const auto all_have_looked = begin + grace;
    while (state_.options.serves_store && WatchClock::now() < all_have_looked + limits_.stay &&
           is_needed(all_have_looked)) {
      if (!pause(kBriefPause)) return;
      publish_own();
    }
    note([&] { state_.settled = true; });
  }

  // Once this process has said what it did at the alarm, only an error of its own is news.
  void publish(const FailureReport& report) {
    if (published_ && report.kind != ReportKind::kError) return;
    if (published_ == ReportKind::kError) return;
    board_.publish(report, /*alarm=*/report.kind != ReportKind::kLeft);
    published_ = report.kind;
    if (needs_nothing()) board_.leave();
    note([] {});
  }

  void publish_own() {
    std::optional<FailureReport> own;
    {
      const std::lock_guard lock(state_.mutex);
      if (std::exchange(state_.own_is_new, false)) own = state_.own;
    }
    if (own) publish(*own);
  }

  FailureReport report_now() const {
    const std::lock_guard lock(state_.mutex);
    return report_of_channels(state_.channels);
  }

  // Nobody waits any more for a process that cannot come.
  void end_channels() {
    const auto error = std::make_exception_ptr(another_cannot_go_on());
    const std::lock_guard lock(state_.mutex);
    state_.ends_channels = true;
    for (const auto& each : state_.channels) each.posted->fail(error);
  }

  // It has told all, and has nothing to learn.
  bool needs_nothing() const { return published_ == ReportKind::kError || published_ == ReportKind::kLeft; }

  // Takes the verdict if there is one; finds it if it is time to, or if a process has reported its own error.
  bool judged(bool is_time) {
    auto verdict = board_.verdict();
    if (!verdict) {
      const auto reports = board_.reports();
      note([&] { take(reports); });
      if (!is_time && !has_own_error(reports)) return false;
      verdict = board_.agree(judge(reports, state_.options.processes, state_.options.store));
    }
    note([&] { state_.verdict = verdict; });
    return true;
  }

  // Whether another process may still ask the store. One that is silent for longer than the grace will not:
  // the verdict may have come earlier, before all have looked.
  bool is_needed(WatchClock::time_point all_have_looked) {
    const auto& reports = board_.reports();
    const bool all_may_ask = needs_nothing() || WatchClock::now() < all_have_looked;
    bool needed = false;
    for (int process = 0; process < static_cast<int>(reports.size()); ++process) {
      const bool expected = all_may_ask || reports[static_cast<size_t>(process)].has_value();
      needed = needed || (process != state_.options.process && expected && !board_.left(process));
    }
    note([] {});
    return needed;
  }

  // This process may have a report that the store has not. The caller holds the mutex.
  void take(const FailureReports& reports) {
    state_.reports = reports;
    if (state_.own) state_.reports[static_cast<size_t>(state_.options.process)] = state_.own;
  }

  // After answers of the store.
  template <typename Change>
  void note(const Change& change) {
    {
      const std::lock_guard lock(state_.mutex);
      state_.heard = WatchClock::now();
      change();
    }
    state_.changed.notify_all();
  }

  // Waits; not longer than until this process has something to report. False when the watch goes away.
  bool pause(milliseconds time) {
    std::unique_lock lock(state_.mutex);
    state_.changed.wait_for(lock, time, [&] { return state_.stopped || state_.own_is_new; });
    return !state_.stopped;
  }

  FailureBoard& board_;
  WatchState& state_;
  const WatchLimits limits_ = state_.options.limits;
  const int next_ = (state_.options.process + 1) % static_cast<int>(state_.options.processes.size());
  int64_t beats_ = 0;  // of the next process
  WatchClock::time_point heard_next_ = WatchClock::now();
  WatchClock::time_point next_beat_ = WatchClock::now();
  std::optional<ReportKind> published_ = {};  // by this process
};

// Waits until all is told and learnt. If the store gives no answer for too long it is lost.
void await_settled(WatchState& state, std::unique_lock<std::mutex>& lock) {
  while (!state.settled && !state.lost) {
    state.changed.wait_until(lock, state.heard + state.options.limits.answer);
    state.lost |= !state.settled && WatchClock::now() >= state.heard + state.options.limits.answer;
  }
}

}  // namespace

FailureWatch::FailureWatch(FailureBoard board, WatchOptions options)
    : state_(std::make_shared<WatchState>(std::move(options))) {
  const auto work = [state = state_, its_board = std::make_shared<FailureBoard>(std::move(board))] {
    block_sigpipe();
    bool lost = false;
    try {
      WatchThread(*its_board, *state).run();
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
  if (state_->alarmed && state_->options.serves_store) await_settled(*state_, lock);
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
  if (state_->ends_channels) posted->fail(std::make_exception_ptr(another_cannot_go_on()));
  state_->channels.push_back({channel, std::move(posted), kind});
}

bool FailureWatch::alarmed() const {
  const std::lock_guard lock(state_->mutex);
  return state_->alarmed;
}

void FailureWatch::leave() {
  const std::lock_guard lock(state_->mutex);
  state_->own = FailureReport{.kind = ReportKind::kLeft};
  state_->own_is_new = true;
  state_->changed.notify_all();
}

std::exception_ptr FailureWatch::explain(const std::exception_ptr& error, const std::string& name) noexcept
    try {
  auto report = report_of_error(error);
  const bool lost_a_peer = report.code == static_cast<int>(ExitCode::kPeer);
  std::unique_lock lock(state_->mutex);
  if (std::exchange(state_->explained, true)) return error;
  if (lost_a_peer) {
    auto waits = report_of_channels(state_->channels);
    waits.kind = ReportKind::kWaits;
    waits.text = report.text;
    waits.code = report.code;
    report = std::move(waits);
  }
  report.name = name;
  state_->reports[static_cast<size_t>(state_->options.process)] = report;
  state_->own = std::move(report);
  state_->own_is_new = true;
  state_->heard = WatchClock::now();
  state_->changed.notify_all();
  await_settled(*state_, lock);
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
