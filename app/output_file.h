// A file that takes the results of a run, line by line.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Opened before the work starts, so that a path that cannot be written stops a run at once and not at its
// end. Until the first line is written nothing is lost and nothing is left: an existing file keeps its
// content, and a file that opening has created is removed again.
class OutputFile {
 public:
  // Throws OutputError: the file exists and `overwrite` is not set, it is a folder, its folder does not
  // exist, ... Devices and pipes (/dev/stderr) may always be written.
  OutputFile(std::string path, bool overwrite);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Adds a newline. The line is handed to the system before this returns. Throws OutputError (disk full).
  void append_line(std::string_view line);

 private:
  std::string path_;
  int fd_ = -1;
  bool created_ = false;  // by us, just now
  bool written_ = false;
};

}  // namespace lockstep
