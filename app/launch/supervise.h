// Waits for the processes of a launch, and ends all of them when one fails.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/launch/child.h>
#include <lockstep/app/launch/launch_signals.h>
#include <lockstep/support/error.h>

namespace lockstep {

struct LaunchLimits {
  // After a process has ended with code 0, until all others must have ended.
  std::chrono::milliseconds early = std::chrono::seconds(10);
  // After a process has lost a peer (code 10), for the peer to end: that one has failed. After an error of
  // usage or of output (codes 2 and 7), for process 0 to end by the same one.
  std::chrono::milliseconds blame = std::chrono::seconds(2);
  // From SIGTERM to SIGKILL.
  std::chrono::milliseconds grace = std::chrono::seconds(5);
};

// The process whose end was the reason to end the others.
struct ProcessFailure {
  int process = 0;
  ExitCode code = ExitCode::kPeer;  // its code; kPeer if it was ended by a signal, or ended early with 0
  std::string text = {};            // "process 2 was ended by signal 9 (Killed)"
};

struct LaunchOutcome {
  std::optional<ProcessFailure> failure = {};
  std::optional<int> signal = {};  // that was passed on to the processes
  bool signalled = false;          // a signal has come, passed on or not
  bool broken_pipe = false;        // SIGPIPE has ended process 0
};

// Returns when all processes have ended:
//  - by themselves, all with code 0
//  - after one has failed: the others then get SIGTERM, and SIGKILL if they do not obey. The first of
//    several that have failed counts, but one with code 10 has only lost another one, and an error of usage
//    or of output is that of process 0 if it has one, too.
//  - after a signal to the launcher, which passes it on and waits as long as it takes. A second one kills
//    them. failure: the first process that did not end with code 0, nor as the signal demands.
LaunchOutcome supervise(std::vector<Child>& children, LaunchSignals& signals,
                        const LaunchLimits& limits = {});

}  // namespace lockstep
