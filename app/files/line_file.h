// A file of lines, such as the metrics of a run.
#pragma once

#include <string>
#include <string_view>
#include <variant>

#include <lockstep/support/files/atomic_file.h>

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

  // Writes the line, which ends with a newline, at once. Throws OutputError (for example: disk full).
  void append(std::string_view line);

 private:
  struct StandardOutput {};
  std::variant<StandardOutput, AtomicFile> file_;
  bool in_place_ = false;  // an AtomicFile that has its name
};

}  // namespace lockstep
