#include <lockstep/app/launch/supervise.h>

#include <fmt/format.h>
#include <string.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>

#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/terminal/terminal.h>
#include <lockstep/parallel/collectives/gloo/failures/verdict.h>

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
bool ended_by(const ProcessEnd& end, int signal) {
  return end.signal == signal || end.code == kSignalCode + signal;
}

// Returns the report that the end of a process makes.
FailureReport report_of(size_t process, const ProcessEnd& end) {
  const bool lost_reader = process == 0 && end.signal == SIGPIPE;
  const int by_signal = lost_reader ? static_cast<int>(ExitCode::kOutput) : kSignalCode + end.signal;
  const int code = end.signal == 0 ? end.code : by_signal;
  return {.process = static_cast<int>(process), .kind = kind_of_end(code), .code = code};
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
      : children_(children),
        signals_(signals),
        limits_(limits),
        ends_(children.size()),
        reports_(children.size()) {}

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
      if (ends_[i]) take_report(i);
      running = running || !ends_[i];
    }
    return running;
  }

  // How process i has ended by itself may be the reason to end the others.
  void take_report(size_t i) {
    const auto& end = *ends_[i];
    if (phase_ == LaunchPhase::kEnding || phase_ == LaunchPhase::kKilled) return;
    const bool as_told = ended_well(end) || (forwarded_ && ended_by(end, *forwarded_));
    if (phase_ == LaunchPhase::kInterrupted && as_told) return;
    reports_[i] = report_of(i, end);
    reports_[i]->order = order_++;
  }

  void react() {
    if (phase_ != LaunchPhase::kRunning && phase_ != LaunchPhase::kBlaming) return;
    const auto* blamed = most_to_blame(reports_);
    if (blamed && is_certain(*blamed, reports_)) {
      end_all();
    } else if (has_failed(reports_) && phase_ == LaunchPhase::kRunning) {
      enter(LaunchPhase::kBlaming, limits_.blame);
    } else if (blamed && !deadline_) {
      deadline_ = LaunchClock::now() + limits_.early;
    }
  }

  void overdue() {
    if (phase_ == LaunchPhase::kEnding) return kill_all();
    overdue_ = true;
    end_all();
  }

  void forward_signal(int signal) {
    signalled_ = true;
    if (phase_ != LaunchPhase::kRunning) return kill_all();
    forwarded_ = signal;
    reports_.assign(reports_.size(), std::nullopt);  // who was done has not left the others too early
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

  std::optional<ProcessFailure> failure() const {
    const auto* blamed = most_to_blame(reports_);
    if (!blamed || (!has_failed(reports_) && !overdue_)) return std::nullopt;
    const auto process = static_cast<size_t>(blamed->process);
    const auto& end = *ends_[process];
    const bool own_code = end.signal == 0 && end.code != 0;
    return ProcessFailure{.process = blamed->process,
                          .code = own_code ? static_cast<ExitCode>(end.code) : ExitCode::kPeer,
                          .text = failure_text(process, end)};
  }

  std::vector<Child>& children_;
  LaunchSignals& signals_;
  const LaunchLimits limits_;
  std::vector<std::optional<ProcessEnd>> ends_;  // by process
  LaunchPhase phase_ = LaunchPhase::kRunning;
  std::optional<LaunchClock::time_point> deadline_;
  FailureReports reports_;        // of those that have ended by themselves
  int64_t order_ = 0;             // of the next report
  bool overdue_ = false;          // the others were not done in time after the first
  std::optional<int> forwarded_;  // the launcher's signal
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
