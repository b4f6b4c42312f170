// Checks that the files named by different flags are different.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct FileFlag {
  std::string flag;                 // "--save"
  std::optional<std::string> path;  // as typed; empty: the flag was not given
};

// Throws UsageError if an output is the same file as another output, as an input, or as the file to which
// standard output or standard error goes, however the paths are spelt. A device or a pipe is refused only if
// two paths are spelt alike: each file would be written in the middle of the other.
void check_distinct_files(const std::vector<FileFlag>& outputs, const std::vector<FileFlag>& inputs = {});

// Throws UsageError if an output lies in this folder, or below it, however the paths are spelt. whose: for
// the message, such as "the run's folder".
void check_outside_folder(const std::vector<FileFlag>& outputs, const std::string& folder,
                          const std::string& whose);

// Returns true if two paths name the same file, which need not exist yet.
bool same_file(const std::string& a, const std::string& b);

}  // namespace lockstep
