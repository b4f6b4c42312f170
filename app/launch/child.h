// One process that the launcher has started.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

// The plan of a process: what to start, and how.
struct ChildPlan {
  std::string path = {};                      // of the program
  std::vector<std::string> words = {};        // its command line, beginning with its name
  std::vector<std::string> environment = {};  // NAME=value
  std::vector<int> cores = {};                // that it may run on; empty: the launcher's
  int output = -1;                            // takes its output and errors; -1: where the launcher's go
};

// How a process has ended: by itself, with a code, or by a signal.
struct ProcessEnd {
  int code = 0;
  int signal = 0;  // 0: by itself
};

// The process leads a process group of its own, so that a terminal's Ctrl-C reaches the launcher alone, which
// passes it on. Its standard input is empty. It dies with the thread that has started it (parent-death
// signal), so that no process outlives a killed launcher.
class Child {
 public:
  // signals: those that the process shall have blocked. Throws UsageError when the program cannot be run, and
  // MemoryError when there can be no more processes.
  Child(const ChildPlan& plan, const sigset_t& signals);
  // Kills what is left of the process and of what it has started, and waits for its end.
  ~Child();
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  Child& operator=(Child&&) = delete;

  // How it has ended; nullopt while it runs. The kernel keeps its number until reap() or the destructor.
  std::optional<ProcessEnd> ending() const;

  // Sends the signal to the process and to what it has started.
  void send(int signal) const;

  // Takes leave of a process that has ended. Programs that it has started may go on, such as the `tee` of a
  // script.
  void reap();

 private:
  pid_t pid_ = 0;  // 0: reaped, or moved from
};

}  // namespace lockstep
