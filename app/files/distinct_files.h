// Files that are named by different flags, and must be different ones.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct FileFlag {
  std::string flag;                 // "--save"
  std::optional<std::string> path;  // as it was typed; none: the flag was not given
};

// Throws UsageError where two outputs, or an output and an input, or an output and the file that standard
// output or standard error goes to, are one file, however they are spelt: one would replace the other.
// Devices and pipes may be shared.
void check_distinct_files(const std::vector<FileFlag>& outputs, const std::vector<FileFlag>& inputs = {});

// Whether two spellings name one file, which need not be there yet.
bool same_file(const std::string& a, const std::string& b);

}  // namespace lockstep
