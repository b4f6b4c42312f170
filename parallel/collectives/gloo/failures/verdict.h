// Who is to blame when processes cannot go on together: the judgement of the processes themselves, and of the
// launcher, which sees how they end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/gloo/roll_call.h>
#include <lockstep/support/error.h>

namespace lockstep {

// In falling order of blame.
enum class ReportKind {
  kError,  // it ends by an error of its own
  kLeft,   // it was done, and has left
  kBusy,   // it waits for nobody
  kWaits,  // for others: a collective has failed or passed its timeout, or was under way when one reported
};

// The report of a process on itself.
struct FailureReport {
  int process = 0;
  ReportKind kind = ReportKind::kBusy;
  int64_t order = 0;            // in which the processes have reported
  std::string name = {};        // for messages: "rank 4 (process 2)"; empty: by its number
  std::string text = {};        // the sentence of its error; empty: none
  int code = 0;                 // the exit code that goes with it
  std::string collective = {};  // kWaits: "allreduce 17 of 25,600 float32"; empty: none that is known
  uint64_t number = 0;          // of the collective on its channel
  std::string channel = {};     // on which it was posted; the same name in all processes: "communicator 0"
  double seconds = 0;           // how long it has waited
};

using FailureReports = std::vector<std::optional<FailureReport>>;  // by process; nullopt: it is silent

// The report of a process that ends with this code: kPeer says only that it has lost another one.
ReportKind kind_of_end(int code);

// Returns true if processes end by this code together: process 0 says why, but may end after others.
bool is_error_of_all(int code);

// Returns true if some process cannot go on: it has reported something else than that it has left.
bool has_failed(const FailureReports& reports);

// Returns the report of the process that is to blame, if one of those that have reported is: of the worst
// kind that there is the first one; but that of process 0 for an error of all that is its own, too. Null:
// there are no reports.
const FailureReport* most_to_blame(const FailureReports& reports);

// Returns true if no later report can take the blame from this one, the one that is most to blame.
bool is_certain(const FailureReport& blamed, const FailureReports& reports);

// The store through which the reports have come.
struct StoreStatus {
  bool answers = true;
  bool of_launcher = false;  // else process 0 serves it
  std::string place = {};    // host and port
};

struct Verdict {
  std::vector<int> blamed = {};  // processes; empty: none alone
  std::string text = {};         // one sentence
  std::string hint = {};
};

// The verdict on processes that wait for different collectives in one place of a channel's order; nullopt if
// none do.
std::optional<Verdict> find_different_calls(const FailureReports& reports);

// Blames the process that most_to_blame() names for an error of its own; else, if the store does not answer,
// its host; else those that are silent; else those that have left; else those that wait for nobody while
// others wait for them. If all wait it says whether their calls differ, or on which channels they wait for
// what. processes: as called in the roll, one for each report.
Verdict judge(const FailureReports& reports, const std::vector<Presence>& processes,
              const StoreStatus& store);

}  // namespace lockstep
