// Runs a program as a shell would, for tests of the built program.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::testing {

struct Process {
  std::vector<std::string> command = {};  // the program's path, then its arguments
  // Added to the caller's environment without its LOCKSTEP_*, NO_COLOR, TERM and OpenMP settings.
  std::map<std::string, std::string> environment = {};
  std::string stdout_path = {};  // where standard output goes instead of `out`
  bool on_terminal = false;      // output and errors go to one (pseudo) terminal, and both into `out`
  // Called before the program starts, with the other end of its terminal: to set its size, at any time.
  std::function<void(int)> on_terminal_made = {};
  // Called when the program has started.
  std::function<void(pid_t)> on_start = {};
  // Called after each new output, with all output so far.
  std::function<void(pid_t, const std::string& out)> on_output = {};
};

struct ProcessResult {
  int exit_code = -1;  // -1: ended by `signal`
  int signal = 0;
  std::string out;
  std::string err;
};

namespace detail {

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Fd() { close(); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

inline void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

struct Channel {
  Fd read;
  Fd write;
};

inline Channel make_pipe() {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC) == 0, "pipe2");
  return {Fd(ends[0]), Fd(ends[1])};
}

inline Channel make_terminal() {
  Fd master(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  require(master.get() >= 0 && ::grantpt(master.get()) == 0 && ::unlockpt(master.get()) == 0, "posix_openpt");
  Fd slave(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  require(slave.get() >= 0, "ptsname");
  return {std::move(master), std::move(slave)};
}

inline std::vector<std::string> merged_environment(const std::map<std::string, std::string>& wanted) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const auto name = text.substr(0, text.find('='));
    const bool dropped = name.rfind("LOCKSTEP_", 0) == 0 || name.rfind("OMP_", 0) == 0 ||
                         name.rfind("GOMP_", 0) == 0 || name == "NO_COLOR" || name == "TERM";
    if (!dropped && wanted.count(name) == 0) merged.push_back(text);
  }
  for (const auto& [name, value] : wanted) merged.push_back(name + "=" + value);
  return merged;
}

inline std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// Reads what is available. False at the end (a terminal reports the end as an error).
inline bool read_some(int fd, std::string& into) {
  std::array<char, 4096> buffer;
  const auto count = ::read(fd, buffer.data(), buffer.size());
  if (count < 0 && errno == EINTR) return true;
  if (count <= 0) return false;
  into.append(buffer.data(), static_cast<size_t>(count));
  return true;
}

}  // namespace detail

// Waits for the program's end. Its standard input is empty.
inline ProcessResult run_process(Process process) {
  auto out = process.on_terminal ? detail::make_terminal() : detail::make_pipe();
  auto err = detail::make_pipe();
  if (process.on_terminal && process.on_terminal_made) process.on_terminal_made(out.read.get());

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (process.stdout_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, process.stdout_path.c_str(), O_WRONLY | O_CREAT,
                                     0666);
  }
  posix_spawn_file_actions_adddup2(&actions, (process.on_terminal ? out : err).write.get(), STDERR_FILENO);

  // A test that runs in the background inherits ignored signals, and the program would keep ignoring them.
  sigset_t usual;
  sigemptyset(&usual);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) sigaddset(&usual, signal);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &usual);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  auto environment = detail::merged_environment(process.environment);
  pid_t pid = 0;
  const int failed =
      posix_spawn(&pid, process.command.front().c_str(), &actions, &attributes,
                  detail::pointers(process.command).data(), detail::pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (failed)
    throw std::runtime_error("cannot start " + process.command.front() + ": " + std::strerror(failed));
  out.write.close();
  err.write.close();
  if (process.on_start) process.on_start(pid);

  ProcessResult result;
  std::array<pollfd, 2> streams{pollfd{out.read.get(), POLLIN, 0}, pollfd{err.read.get(), POLLIN, 0}};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    if (::poll(streams.data(), streams.size(), -1) < 0) continue;
    if (streams[0].revents && !detail::read_some(streams[0].fd, result.out)) streams[0].fd = -1;
    if (streams[1].revents && !detail::read_some(streams[1].fd, result.err)) streams[1].fd = -1;
    if (process.on_output) process.on_output(pid, result.out);
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  return result;
}

}  // namespace lockstep::testing
