// Faults at the system calls of a task, which runs in a child process that the test traces (ptrace).
//
//   for (int call = 0;; ++call) {
//     if (!run_with_fault(task, {.call = call, .kind = Fault::kKill}).reached) break;  // fewer calls than
//     that
//     ...  // what has the task left?
//   }
#pragma once

#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <set>
#include <stdexcept>

namespace lockstep::testing {

struct Fault {
  enum Kind {
    kKill,        // SIGKILL in place of the call
    kError,       // the call does nothing and fails with `error`; only calls that name or change files count
    kShortWrite,  // write() writes half; only write() counts
  };
  int call = 0;  // from 0
  Kind kind = kKill;
  int error = 0;
};

struct FaultyRun {
  bool reached = false;  // the call was there
  bool killed = false;
  int code = 0;  // the child's exit code: 0, or 1 if the task threw
};

inline bool counts(Fault::Kind kind, long long call) {
  static const std::set<long long> kFileCalls = {
      SYS_write,     SYS_pwrite64,   SYS_open,     SYS_openat,          SYS_creat,  SYS_fsync,
      SYS_ftruncate, SYS_rename,     SYS_renameat, SYS_renameat2,       SYS_mkdir,  SYS_mkdirat,
      SYS_unlink,    SYS_unlinkat,   SYS_rmdir,    SYS_flock,           SYS_fchmod, SYS_symlink,
      SYS_symlinkat, SYS_link,       SYS_linkat,   SYS_sync_file_range, SYS_read,   SYS_pread64,
      SYS_lseek,     SYS_getdents64, SYS_fstat,    SYS_newfstatat};
  if (kind == Fault::kKill) return true;
  return kind == Fault::kShortWrite ? call == SYS_write : kFileCalls.contains(call);
}

namespace detail {

[[noreturn]] inline void traced_child(const std::function<void()>& task) {
  if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(2);
  raise(SIGSTOP);  // the parent takes over; the task's calls are counted from here
  int code = 0;
  try {
    task();
  } catch (...) {
    code = 1;
  }
  _exit(code);
}

// Changes the call that the child is about to make.
inline void inject(pid_t child, const Fault& fault, user_regs_struct& registers) {
  if (fault.kind == Fault::kKill) {
    kill(child, SIGKILL);
    return;
  }
  if (fault.kind == Fault::kShortWrite) {
    registers.rdx = (registers.rdx + 1) / 2;
  } else {
    registers.orig_rax = static_cast<unsigned long long>(-1);  // no such call: it does nothing
  }
  ptrace(PTRACE_SETREGS, child, nullptr, &registers);
}

}  // namespace detail

// Returns true if this machine lets a process trace its child.
inline bool can_trace() {
  const pid_t child = fork();
  if (child == 0) _exit(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) == 0 ? 0 : 2);
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// The task must not need threads of the parent.
inline FaultyRun run_with_fault(const std::function<void()>& task, const Fault& fault) {
  const pid_t child = fork();
  if (child == 0) detail::traced_child(task);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) throw std::runtime_error("the child cannot be traced");
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  FaultyRun run;
  int counted = 0;
  bool entering = true, injected = false;
  for (;;) {
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    if (waitpid(child, &status, 0) != child) throw std::runtime_error("the child is lost");
    if (WIFEXITED(status) || WIFSIGNALED(status)) break;
    if (WSTOPSIG(status) != (SIGTRAP | 0x80)) continue;
    user_regs_struct registers{};
    ptrace(PTRACE_GETREGS, child, nullptr, &registers);
    if (entering && registers.orig_rax != SYS_exit_group &&
        counts(fault.kind, static_cast<long long>(registers.orig_rax)) && counted++ == fault.call) {
      run.reached = injected = true;
      detail::inject(child, fault, registers);
    } else if (!entering && injected && fault.kind == Fault::kError) {
      registers.rax = static_cast<unsigned long long>(-fault.error);
      ptrace(PTRACE_SETREGS, child, nullptr, &registers);
      injected = false;
    }
    entering = !entering;
  }
  run.killed = WIFSIGNALED(status);
  run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  return run;
}

}  // namespace lockstep::testing
