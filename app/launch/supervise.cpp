#include <lockstep/app/launch/supervise.h>

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>

#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>

namespace lockstep {
namespace {

constexpr int kSignalCode = 128;  // a signal's exit code, less its number

enum class LaunchPhase {
  kRunning,
  kBlaming,      // one has ended, but another one that is about to end may be to blame
  kInterrupted,  // all have got the launcher's signal
  kEnding,       // one has failed, and the others have been told to end
  kKilled,
};

bool ended_well(const ProcessEnd& end) { return end.code == 0 && end.signal == 0; }
bool ended_with(const ProcessEnd& end, ExitCode code) { return end.code == static_cast<int>(code); }
bool lost_a_peer(const ProcessEnd& end) { return ended_with(end, ExitCode::kPeer); }
// All processes have the same error of usage, and that of process 0 has been seen. When process 0 cannot
// write its output, the others end with its code, and maybe before it.
bool may_be_of_first(const ProcessEnd& end) {
  return ended_with(end, ExitCode::kUsage) || ended_with(end, ExitCode::kOutput);
}
bool ended_by(const ProcessEnd& end, int signal) {
  return end.signal == signal || end.code == kSignalCode + signal;
}

std::string failure_text(size_t process, const ProcessEnd& end) {
  if (end.signal != 0) {
    return fmt::format("process {} was ended by signal {} ({})", process, end.signal,
                       ::strsignal(end.signal));
  }
  const auto* early = ended_well(end) ? " before the others were done" : "";
  return fmt::format("process {} ended with code {}{}", process, end.code, early);
}

class Supervision {
 public:
  Supervision(std::vector<Child>& children, LaunchSignals& signals, const LaunchLimits& limits)
      : children_(children), signals_(signals), limits_(limits), ends_(children.size()) {}

  LaunchOutcome run() {
    while (note_ended()) {
      react();
      if (const auto signal = signals_.wait(deadline_)) {
        if (*signal != SIGCHLD) forward_signal(*signal);
      } else if (deadline_ && LaunchClock::now() >= *deadline_) {
        overdue();
      }
    }
    return {.failure = failure(),
            .signal = forwarded_,
            .signalled = signalled_,
            .broken_pipe = ends_[0]->signal == SIGPIPE};
  }

 private:
  using LaunchClock = std::chrono::steady_clock;

  // Notes which processes have ended. False when all have.
  bool note_ended() {
    bool running = false;
    for (size_t i = 0; i < children_.size(); ++i) {
      if (ends_[i]) continue;
      ends_[i] = children_[i].ending();
      if (ends_[i]) judge(i);
      running = running || !ends_[i];
    }
    return running;
  }

  // How process i has ended by itself may be the reason to end the others.
  void judge(size_t i) {
    const auto& end = *ends_[i];
    if (phase_ == LaunchPhase::kEnding || phase_ == LaunchPhase::kKilled) return;
    if (phase_ == LaunchPhase::kInterrupted && ended_by(end, *forwarded_)) return;
    if (ended_well(end)) {
      if (!first_done_) first_done_ = i;
    } else if (!culprit_ || more_to_blame(i)) {
      culprit_ = i;
    }
  }

  bool more_to_blame(size_t i) const {
    const auto &blamed = *ends_[*culprit_], &end = *ends_[i];
    if (lost_a_peer(blamed)) return !lost_a_peer(end);
    return i == 0 && may_be_of_first(blamed) && (end.code == blamed.code || end.signal == SIGPIPE);
  }

  bool blame_is_certain() const {
    const auto& blamed = *ends_[*culprit_];
    return !lost_a_peer(blamed) && (!may_be_of_first(blamed) || ends_[0]);
  }

  void react() {
    if (phase_ != LaunchPhase::kRunning && phase_ != LaunchPhase::kBlaming) return;
    if (culprit_ && blame_is_certain()) {
      end_all();
    } else if (culprit_ && phase_ == LaunchPhase::kRunning) {
      enter(LaunchPhase::kBlaming, limits_.blame);
    } else if (!culprit_ && first_done_ && !deadline_) {
      deadline_ = LaunchClock::now() + limits_.early;
    }
  }

  void overdue() {
    if (phase_ == LaunchPhase::kEnding) return kill_all();
    if (!culprit_) culprit_ = first_done_;
    end_all();
  }

  void forward_signal(int signal) {
    signalled_ = true;
    if (phase_ != LaunchPhase::kRunning) return kill_all();
    forwarded_ = signal;
    // Process 0 may have drawn there, and the terminal has printed ^C.
    Terminal(STDERR_FILENO, ColorMode::kNever).erase_leftovers();
    inform(fmt::format("SIG{} passed on, waiting for the processes; a second one kills them",
                       ::sigabbrev_np(signal)));
    enter(LaunchPhase::kInterrupted, {});
    send(signal);
  }

  void end_all() {
    enter(LaunchPhase::kEnding, limits_.grace);
    send(SIGTERM);
  }

  void kill_all() {
    enter(LaunchPhase::kKilled, {});
    send(SIGKILL);
  }

  void enter(LaunchPhase phase, std::optional<std::chrono::milliseconds> limit) {
    phase_ = phase;
    deadline_.reset();
    if (limit) deadline_ = LaunchClock::now() + *limit;
  }

  void send(int signal) {
    for (size_t i = 0; i < children_.size(); ++i) {
      if (!ends_[i]) children_[i].send(signal);
    }
  }

  // A process that has lost a peer tells nothing about the failure if another one had left it with code 0.
  std::optional<ProcessFailure> failure() const {
    if (!culprit_) return std::nullopt;
    const bool left = first_done_ && lost_a_peer(*ends_[*culprit_]) && !forwarded_;
    const auto process = left ? *first_done_ : *culprit_;
    const auto& end = *ends_[process];
    const bool own_code = end.signal == 0 && end.code != 0;
    return ProcessFailure{.process = static_cast<int>(process),
                          .code = own_code ? static_cast<ExitCode>(end.code) : ExitCode::kPeer,
                          .text = failure_text(process, end)};
  }

  std::vector<Child>& children_;
  LaunchSignals& signals_;
  const LaunchLimits limits_;
  std::vector<std::optional<ProcessEnd>> ends_;  // by process
  LaunchPhase phase_ = LaunchPhase::kRunning;
  std::optional<LaunchClock::time_point> deadline_;
  std::optional<size_t> first_done_;  // the first that has ended with code 0
  std::optional<size_t> culprit_;     // the process that has failed
  std::optional<int> forwarded_;      // the launcher's signal
  bool signalled_ = false;
};

}  // namespace

LaunchOutcome supervise(std::vector<Child>& children, LaunchSignals& signals, const LaunchLimits& limits) {
  auto outcome = Supervision(children, signals, limits).run();
  if (!outcome.failure && !outcome.signalled) {
    for (auto& child : children) child.reap();
  }
  return outcome;
}

}  // namespace lockstep
