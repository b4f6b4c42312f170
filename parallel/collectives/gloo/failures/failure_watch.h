// Watches whether all processes can still go on, and finds out who is to blame when one cannot.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/parallel/collectives/gloo/failures/failure_board.h>
#include <lockstep/parallel/collectives/gloo/posted_collectives.h>

namespace lockstep {

struct WatchState;

// Very many processes poll less often. Then the grace and the silence are longer, too.
struct WatchLimits {
  std::chrono::milliseconds poll{250};        // between two polls of the store
  std::chrono::milliseconds grace{2'000};     // for the reports of the others
  std::chrono::milliseconds stay{1'500};      // of the store's host for the others, after the grace
  std::chrono::milliseconds beat{1'000};      // between two signs of life
  std::chrono::milliseconds silence{10'000};  // without a sign of life, while others wait in the store
  std::chrono::milliseconds answer{2'000};    // for each answer of the store
  std::chrono::milliseconds compare{500};     // of a wait, before it is compared with those of others
};

// The medium that the collectives of a channel go through.
enum class ChannelKind { kSockets, kStore };

struct WatchOptions {
  int process = 0;
  bool serves_store = false;             // then this process stays until the others need the store no more
  std::vector<Presence> processes = {};  // as called in the roll
  StoreStatus store = {};
  WatchLimits limits = {};
};

// Its thread polls the store four times a second. When a process reports there that it cannot go on,
// this one reports what it does itself, and its collectives end. So whoever is silent then has ended or
// hangs, however long a step takes. Processes that have lost another one gather reports for two seconds,
// and then agree on one verdict.
//
// A socket says at once when its other end has died; the store does not. So each watch gives a sign of life
// every second. A process that waits for others in the store looks at that of the next process (of the last
// one: process 0), and gives the alarm when there has been none for ten seconds.
//
// A collective that does not end within half a second is compared at each poll with what other processes wait
// for in its place: if that differs, all get a verdict that names both. It ends their collectives once all
// have reported: before that none ends, nor closes the connections of those that do not know the verdict yet.
//
// The thread waits for the store without a limit. When the store hangs it is left behind: nothing else waits
// longer than two seconds for the next answer.
class FailureWatch {
 public:
  // Throws MemoryError if the system cannot start a thread.
  FailureWatch(FailureBoard board, WatchOptions options);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  // Watches the collectives of a channel, too; ends them if another process cannot go on. Its name is the
  // same in all processes. Channels that serve the same calls share one. Thread-safe.
  void add(const std::string& channel, std::shared_ptr<PostedCollectives> posted,
           ChannelKind kind = ChannelKind::kSockets);

  // Returns true once this process waits for others in vain, since one cannot go on. Thread-safe.
  bool ends_waits() const;

  // Tells the others that this process was done, and that it does not need the store. Returns at once.
  void leave();

  // This process ends by `error`: reports it, and returns the error to end with. That is a PeerError with the
  // verdict if `error` has the exit code of a lost peer, else `error`. name: of this process, for the others'
  // messages. Only the first call counts; a later one returns its error.
  std::exception_ptr explain(const std::exception_ptr& error, const std::string& name) noexcept;

 private:
  const std::shared_ptr<WatchState> state_;
  std::thread thread_;
};

}  // namespace lockstep
