// The output of all processes but the first, kept in temporary files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <lockstep/support/files/owned_fd.h>

namespace lockstep {

// A folder of its own in $TMPDIR, which is removed with the object.
class ProcessOutput {
 public:
  // Throws OutputError, as create() does.
  ProcessOutput();
  ~ProcessOutput();
  ProcessOutput(const ProcessOutput&) = delete;
  ProcessOutput& operator=(const ProcessOutput&) = delete;

  // Creates the file of a process, for appending. restart: each start of the processes has files of its own.
  OwnedFd create(int process, int restart) const;

  std::filesystem::path file(int process, int restart) const;
  const std::filesystem::path& folder() const { return folder_; }

  // The folder stays.
  void keep() { kept_ = true; }

 private:
  std::filesystem::path folder_;
  bool kept_ = false;
};

// The last lines of a file, at most `most`, of its last 64 KiB. Empty if it cannot be read.
std::vector<std::string> last_lines(const std::filesystem::path& file, size_t most);

}  // namespace lockstep
