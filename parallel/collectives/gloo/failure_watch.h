// Watches whether all processes can still go on, and finds out who is to blame when one cannot.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <lockstep/parallel/collectives/gloo/failure_board.h>
#include <lockstep/parallel/collectives/gloo/posted_collectives.h>

namespace lockstep {

struct WatchState;

struct WatchLimits {
  std::chrono::milliseconds look{250};      // between two looks into the store; more for very many processes
  std::chrono::milliseconds grace{2'000};   // for the reports of the others
  std::chrono::milliseconds stay{3'500};    // how long the store's host stays for the others
  std::chrono::milliseconds answer{2'000};  // for each answer of the store
};

struct WatchOptions {
  int process = 0;
  bool serves_store = false;             // then this process stays until the others need the store no more
  std::vector<Presence> processes = {};  // as called in the roll
  StoreStatus store = {};
  WatchLimits limits = {};
};

// Its thread looks into the store four times a second. When a process reports there that it cannot go on,
// this one reports what it does itself, and its collectives end. So whoever is silent then has ended or
// hangs, however long a step takes. Those that have lost another process gather reports for two seconds, and
// then agree on one verdict.
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

  // Watches the collectives of a channel, too. Thread-safe.
  void add(int channel, std::shared_ptr<PostedCollectives> posted);

  // Whether this process knows that one cannot go on. Thread-safe.
  bool alarmed() const;

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
