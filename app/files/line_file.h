// A file of lines, such as the metrics of a run.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <lockstep/support/atomic_file.h>

namespace lockstep {

inline constexpr std::string_view kStandardOutput = "-";

// Open it before the work starts: a path that cannot be written then stops the run at once. An existing file
// keeps its content until the first line is written, and a new file does not exist before. From then on the
// file holds whole lines at any moment.
class LineFile {
 public:
  // Opens the file at `path`, or standard output if it is kStandardOutput. Throws OutputError like
  // AtomicFile.
  LineFile(const std::string& path, bool overwrite);

  // Writes the line and a newline at once. Throws OutputError (for example: disk full).
  void append_line(std::string_view line);

 private:
  std::optional<AtomicFile> file_;  // empty: standard output
  bool in_place_ = false;
};

}  // namespace lockstep
