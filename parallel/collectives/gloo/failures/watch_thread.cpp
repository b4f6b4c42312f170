#include <lockstep/parallel/collectives/gloo/failures/watch_thread.h>

#include <cstddef>
#include <cstdint>
#include <exception>

#include <lockstep/parallel/collectives/gloo/messages.h>

namespace lockstep {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBriefPause{50};  // while reports come in
constexpr int kPollsInLimit = 4;         // that every process takes within the grace and the silence

// Returns true if, of two collectives that have not ended, the first says more: the one that failed first
// does; else the one that has waited longer.
bool says_more(const AwaitedCollective& a, const AwaitedCollective& b) {
  if (a.failed != b.failed) return a.failed;
  return a.failed ? a.end < b.end : a.collective.begin < b.collective.begin;
}

class WatchThread {
 public:
  WatchThread(FailureBoard& board, WatchState& state) : board_(board), state_(state) {}

  void run() {
    while (!poll()) {
      if (!pause(poll_interval())) return publish_own();  // it may have left just now
    }
    conclude();
  }

 private:
  // One store answers all processes.
  milliseconds poll_interval() const {
    return std::max(limits_.poll, milliseconds(state_.options.processes.size()));
  }

  // At least `limit`, and long enough for polls of all processes.
  milliseconds long_enough(milliseconds limit) const {
    return limit.count() == 0 ? limit : std::max(limit, kPollsInLimit * poll_interval());
  }

  // Returns true if a process cannot go on.
  bool poll() {
    publish_own();
    const auto& reports = board_.reports();
    note([&] { take(reports); });
    return has_failed(reports) || calls_differ() || (next_is_silent() && waits_in_store());
  }

  // Returns true if another process waits for something else in the place of what this one waits for too
  // long. If so, proposes the verdict.
  bool calls_differ() {
    auto own = report_now(ChannelKind::kSockets);
    if (own.kind != ReportKind::kWaits ||
        own.seconds < std::chrono::duration<double>(limits_.compare).count())
      return false;
    FailureReports both(state_.options.processes.size());
    board_.compare(own, both);
    both[static_cast<size_t>(state_.options.process)] = std::move(own);
    note([] {});
    const auto verdict = find_different_calls(both);
    if (verdict) board_.agree(*verdict);
    return verdict.has_value();
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

  bool waits_in_store() const { return report_now(ChannelKind::kStore).kind == ReportKind::kWaits; }

  void conclude() {
    const auto begin = WatchClock::now();
    const auto grace = long_enough(limits_.grace);
    const auto verdict = board_.verdict();  // it is there before the alarm where calls differ
    note([&] {
      state_.phase = WatchPhase::kAlarmed;
      state_.verdict = verdict;
    });
    const bool told = verdict && verdict->blamed.empty();
    const auto error =
        std::make_exception_ptr(told ? PeerError(verdict->text, verdict->hint) : peer_failed_error());
    if (told) for_channels([&](auto& posted) { posted.preset_error(error); });
    if (!published_) publish(report_now());
    if (told && !await_reports(begin + grace)) return;
    end_channels(error);
    if (!wait_until([&] { return needs_nothing() || judged(WatchClock::now() >= begin + grace); })) return;
    board_.leave();
    const auto all_have_looked = begin + grace;
    const auto may_end = [&] {
      return !state_.options.serves_store || WatchClock::now() >= all_have_looked + limits_.stay ||
             !is_needed(all_have_looked);
    };
    if (!wait_until(may_end)) return;
    note([&] { state_.phase = WatchPhase::kConcluded; });
  }

  // Once this process has said what it did at the alarm, only an error of its own is news.
  void publish(const FailureReport& report) {
    if (published_ && report.kind != ReportKind::kError) return;
    if (published_ == ReportKind::kError) return;
    board_.publish(report);
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

  FailureReport report_now(std::optional<ChannelKind> kind = {}) const {
    const std::lock_guard lock(state_.mutex);
    return report_of_channels(state_, kind);
  }

  // When the first process ends by a verdict its connections close. Whoever has reported foresees the
  // verdict: then Gloo's error does not come in its place. Returns false when the watch goes away.
  bool await_reports(WatchClock::time_point latest) try {
    const auto is_there = [](const auto& report) { return report.has_value(); };
    const auto all_are_there = [&] {
      const auto& reports = board_.reports();
      note([&] { take(reports); });
      return std::all_of(reports.begin(), reports.end(), is_there);
    };
    return wait_until([&] { return all_are_there() || WatchClock::now() >= latest; });
  } catch (const std::exception&) {  // c10d's: the store's host has ended by the verdict
    return true;
  }

  // Nobody waits any more for a process that cannot come.
  void end_channels(const std::exception_ptr& error) {
    note([&] { state_.phase = WatchPhase::kEndsWaits; });
    for_channels([&](auto& posted) { posted.fail(error); });
  }

  // Calls change(its collectives) for each channel.
  template <typename Change>
  void for_channels(const Change& change) {
    const std::lock_guard lock(state_.mutex);
    for (const auto& each : state_.channels) change(*each.posted);
  }

  // It has told all, and has nothing to learn.
  bool needs_nothing() const { return published_ == ReportKind::kError || published_ == ReportKind::kLeft; }

  // Takes the verdict if there is one; finds it if it is time to, or if it is certain.
  bool judged(bool is_time) {
    auto verdict = board_.verdict();
    if (!verdict) {
      const auto reports = board_.reports();
      note([&] { take(reports); });
      const auto* blamed = most_to_blame(reports);
      if (!is_time && !(blamed && is_certain(*blamed, reports))) return false;
      verdict = board_.agree(judge(reports, state_.options.processes, state_.options.store));
    }
    note([&] { state_.verdict = verdict; });
    return true;
  }

  // Returns true if another process may still ask the store. One that is silent for longer than the grace
  // will not: the verdict may have come earlier, before all have looked.
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

  // Looks again and again, and reports what is new. Returns false when the watch goes away.
  template <typename Done>
  bool wait_until(const Done& done) {
    while (!done()) {
      if (!pause(kBriefPause)) return false;
      publish_own();
    }
    return true;
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

}  // namespace

FailureReport report_of_channels(const WatchState& state, std::optional<ChannelKind> kind) {
  FailureReport report{.process = state.options.process};
  std::optional<AwaitedCollective> best;
  for (const auto& each : state.channels) {
    if (kind && each.kind != kind) continue;
    const auto awaited = each.posted->awaited();
    if (!awaited || (best && !says_more(*awaited, *best))) continue;
    best = awaited;
    report.channel = each.name;
  }
  if (!best) return report;
  report.kind = ReportKind::kWaits;
  report.collective = text_of(best->collective);
  report.number = best->collective.call ? best->collective.call->number : best->collective.number;
  report.seconds = std::chrono::duration<double>(best->end - best->collective.begin).count();
  return report;
}

void watch_failures(FailureBoard& board, WatchState& state) { WatchThread(board, state).run(); }

}  // namespace lockstep
