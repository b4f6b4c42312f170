// The thread of a FailureWatch, and what the watch shares with it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/collectives/gloo/failures/failure_watch.h>

namespace lockstep {

using WatchClock = std::chrono::steady_clock;

enum class WatchPhase {
  kWatching,
  kAlarmed,    // some process cannot go on
  kEndsWaits,  // the channels that are there, and those to come, end
  kConcluded,  // all is told and learnt
};

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
  WatchPhase phase = WatchPhase::kWatching;
  bool lost = false;   // the store
  bool ended = false;  // the thread
};

// Returns what this process does, seen from its channels: all of them, or those of one kind. The caller holds
// the mutex.
FailureReport report_of_channels(const WatchState& state, std::optional<ChannelKind> kind = {});

// Returns when the watch goes away, or when all is told and learnt. Only it uses the board. Throws c10d's
// errors when the store is lost.
void watch_failures(FailureBoard& board, WatchState& state);

}  // namespace lockstep
