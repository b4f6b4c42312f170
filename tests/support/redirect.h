// Sends a standard stream of the test to a file.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

namespace lockstep::testing {

// While it lives, what is written to `stream` (STDOUT_FILENO or STDERR_FILENO) is appended to the file.
class Redirect {
 public:
  Redirect(int stream, const std::string& path) : stream_(stream), kept_(::dup(stream)) {
    const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    ::dup2(file, stream);
    ::close(file);
  }
  ~Redirect() {
    ::dup2(kept_, stream_);
    ::close(kept_);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  int stream_;
  int kept_;
};

}  // namespace lockstep::testing
