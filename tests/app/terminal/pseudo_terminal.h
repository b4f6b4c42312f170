// A pseudo terminal for tests of what is drawn on one.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <lockstep/tests/catch.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep::testing {

// Takes the place of standard output and standard error while it lives.
class PseudoTerminal {
 public:
  PseudoTerminal() : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    REQUIRE((master_ >= 0 && ::grantpt(master_) == 0 && ::unlockpt(master_) == 0));
    slave_ = ::open(::ptsname(master_), O_RDWR | O_NOCTTY);
    REQUIRE(slave_ >= 0);
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
      kept_.push_back(::dup(fd));
      ::dup2(slave_, fd);
    }
  }
  ~PseudoTerminal() {
    restore();
    ::close(slave_);
    ::close(master_);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  // Returns what has been written since the last call.
  std::string written() {
    std::string text;
    for (pollfd ready{master_, POLLIN, 0}; ::poll(&ready, 1, 0) > 0 && (ready.revents & POLLIN);) {
      std::array<char, 4096> buffer;
      const auto count = ::read(master_, buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    return text;
  }

  void resize(int columns, int rows) const {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = static_cast<unsigned short>(rows);
    ::ioctl(slave_, TIOCSWINSZ, &size);
  }

  void restore() {
    for (size_t i = 0; i < kept_.size(); ++i) {
      ::dup2(kept_[i], i == 0 ? STDOUT_FILENO : STDERR_FILENO);
      ::close(kept_[i]);
    }
    kept_.clear();
  }

 private:
  int master_;
  int slave_ = -1;
  std::vector<int> kept_;
};

}  // namespace lockstep::testing
