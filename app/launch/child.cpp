#include <lockstep/app/launch/child.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include <lockstep/support/error.h>
#include <lockstep/support/files/errno_text.h>
#include <lockstep/support/files/owned_fd.h>
#include <lockstep/support/printable.h>

namespace lockstep {
namespace {

constexpr int kNotStarted = 127;  // the exit code of a process that never became the program

// All that a new process needs before it becomes the program, ready before the fork.
struct ChildSteps {
  const char* path;
  char* const* words;
  char* const* environment;
  const cpu_set_t* cores;  // null: the launcher's
  int input;
  int output;  // -1: the launcher's
  int errors;  // pipe to the launcher: errno of a failed exec
  pid_t launcher;
  const sigset_t* signals;
};

// The new process. Threads of the launcher may have held locks when it forked, so that only system calls are
// safe here.
[[noreturn]] void become_program(const ChildSteps& steps) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != steps.launcher) ::_exit(kNotStarted);  // it has died before the line above
  ::setpgid(0, 0);
  if (steps.cores) ::sched_setaffinity(0, sizeof *steps.cores, steps.cores);
  ::dup2(steps.input, STDIN_FILENO);
  if (steps.output >= 0) {
    ::dup2(steps.output, STDOUT_FILENO);
    ::dup2(steps.output, STDERR_FILENO);
  }
  // app/main.cpp ignores the first two. The third would stop a process of the background that writes to a
  // terminal set to `tostop`.
  struct sigaction usual {};
  struct sigaction ignored {};
  usual.sa_handler = SIG_DFL;
  ignored.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &usual, nullptr);
  ::sigaction(SIGXFSZ, &usual, nullptr);
  ::sigaction(SIGTTOU, &ignored, nullptr);
  ::sigprocmask(SIG_SETMASK, steps.signals, nullptr);
  ::execve(steps.path, steps.words, steps.environment);
  const int error = errno;
  (void)!::write(steps.errors, &error, sizeof error);
  ::_exit(kNotStarted);
}

// For exec, which changes none of the texts.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const auto& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

cpu_set_t set_of_cores(const std::vector<int>& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  return set;
}

// errno of the new process's exec; 0: it has become the program, which has closed the pipe.
int exec_error(int pipe) {
  int error = 0;
  ssize_t count = 0;
  while ((count = ::read(pipe, &error, sizeof error)) < 0 && errno == EINTR) continue;
  return count == static_cast<ssize_t>(sizeof error) ? error : 0;
}

void wait_for_end(pid_t pid) {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
}

Error cannot_start(const std::string& path, int error) {
  const auto what = fmt::format("cannot start {}: {}", in_quotes(path), errno_text(error));
  if (error == EAGAIN || error == ENOMEM) {
    return {ExitCode::kMemory, what, "start fewer processes, or raise the limit on them (ulimit -u)"};
  }
  if (error == EMFILE || error == ENFILE) {
    return {ExitCode::kFailed, what, "raise the limit on open files (ulimit -n)"};
  }
  return {ExitCode::kUsage, what,
          "it must be a program for this machine, or a script whose first line names its interpreter"};
}

}  // namespace

Child::Child(const ChildPlan& plan, const sigset_t& signals) {
  const OwnedFd input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  int ends[2] = {-1, -1};
  if (input.get() < 0 || ::pipe2(ends, O_CLOEXEC) != 0) throw cannot_start(plan.path, errno);
  const OwnedFd reading(ends[0]);
  OwnedFd writing(ends[1]);
  const auto words = pointers_to(plan.words), environment = pointers_to(plan.environment);
  const auto cores = set_of_cores(plan.cores);
  const ChildSteps steps{.path = plan.path.c_str(),
                         .words = words.data(),
                         .environment = environment.data(),
                         .cores = plan.cores.empty() ? nullptr : &cores,
                         .input = input.get(),
                         .output = plan.output,
                         .errors = writing.get(),
                         .launcher = ::getpid(),
                         .signals = &signals};
  pid_ = ::fork();
  if (pid_ == 0) become_program(steps);
  if (pid_ < 0) throw cannot_start(plan.path, errno);
  ::setpgid(pid_, pid_);  // the process does it, too: a signal may be sent before it has run
  writing.close();
  if (const int error = exec_error(reading.get()); error != 0) {
    wait_for_end(pid_);
    throw cannot_start(plan.path, error);
  }
}

Child::~Child() {
  if (pid_ <= 0) return;
  send(SIGKILL);
  reap();
}

std::optional<ProcessEnd> Child::ending() const {
  siginfo_t info{};
  const int failed = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (failed || info.si_pid == 0) return std::nullopt;
  if (info.si_code == CLD_EXITED) return ProcessEnd{.code = info.si_status};
  return ProcessEnd{.signal = info.si_status};
}

void Child::send(int signal) const {
  if (::kill(-pid_, signal) != 0) ::kill(pid_, signal);
}

void Child::reap() {
  wait_for_end(pid_);
  pid_ = 0;
}

}  // namespace lockstep
