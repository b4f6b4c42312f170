// The reports of the processes to each other in the store when one cannot go on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gloo/failures/verdict.h>

namespace lockstep {

struct C10dStore;

// Each call blocks until the store answers, without limit, and throws c10d's error when the store is lost.
// Call it only from a thread that may be abandoned (failure_watch.h).
class FailureBoard {
 public:
  // client: of this board alone, since a call that waits keeps it locked.
  FailureBoard(std::shared_ptr<C10dStore> client, int process, int processes);

  // A later report takes the place of an earlier one.
  void publish(FailureReport report);
  const FailureReports& reports();  // so far

  // Proposes a verdict. Returns the one proposed first, which counts for all processes.
  Verdict agree(const Verdict& own);
  std::optional<Verdict> verdict();  // nullopt: none yet

  // Says what this process waits for. If another one has said so first of the same place in the order of a
  // channel, its report comes into `reports`. Call it again and again while the process waits: another may
  // come later, and one that goes on takes the word of that place away.
  void compare(const FailureReport& waits, FailureReports& reports);

  // Increments this process's heartbeat.
  void beat();
  // Returns a process's heartbeat.
  int64_t beats(int process);

  // Says that this process no longer uses the store.
  void leave();
  // Returns true if a process has said so.
  bool left(int process);

 private:
  bool has(const std::string& key) const;
  // Returns the text that is there afterwards.
  std::string set_if_new(const std::string& key, const nlohmann::json& value);
  void read(const std::vector<size_t>& orders);
  void take(size_t order, const std::string& text);

  const std::shared_ptr<C10dStore> client_;
  const int process_;
  FailureReports reports_;
  std::vector<bool> read_;  // by the order of the reports
  std::string compared_key_;
};

}  // namespace lockstep
