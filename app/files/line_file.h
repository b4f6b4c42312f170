// A file that takes the results of a run, line by line.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/support/atomic_file.h>

namespace lockstep {

// Opened before the work starts, so that a path that cannot be written stops a run at once and not at its
// end. Until the first line is written an existing file keeps its content, and nothing is left of a new one;
// with that line it gets its name, and from then on it holds whole lines at any moment.
class LineFile {
 public:
  // Throws OutputError as AtomicFile does.
  LineFile(const std::string& path, bool overwrite) : file_(path, overwrite) {}

  // Adds a newline. The line is handed to the system before this returns. Throws OutputError (disk full).
  void append_line(std::string_view line);

 private:
  AtomicFile file_;
  bool in_place_ = false;
};

}  // namespace lockstep
