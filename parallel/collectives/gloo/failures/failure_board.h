// What the processes tell each other in the store when one cannot go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gloo/failures/verdict.h>

namespace lockstep {

struct C10dStore;

// Every function asks the store, waits for its answer as long as that takes, and throws what c10d throws when
// the store is lost: so it belongs to a thread that can be left behind (failure_watch.h).
class FailureBoard {
 public:
  // client: of this board alone, since a call that waits keeps it locked.
  FailureBoard(std::shared_ptr<C10dStore> client, int process, int processes);

  // A later report takes the place of an earlier one. alarm: tells all that this process cannot go on.
  void publish(const FailureReport& report, bool alarm);
  bool alarmed();
  const FailureReports& reports();  // so far

  // The first verdict that any process proposes is that of all.
  Verdict agree(const Verdict& own);
  std::optional<Verdict> verdict();  // nullopt: none yet

  // Counts up: a sign of life. And how often a process has given one.
  void beat();
  int64_t beats(int process);

  // This process needs the store no more, nor do those for which left() is true.
  void leave();
  bool left(int process);

 private:
  bool has(const std::string& key) const;
  void read(const std::vector<size_t>& orders);
  void take(size_t order, const std::string& text);

  const std::shared_ptr<C10dStore> client_;
  const int process_;
  FailureReports reports_;
  std::vector<bool> read_;  // by the order of the reports
};

}  // namespace lockstep
