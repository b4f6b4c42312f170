// Memory that is a file's.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::testing {

// Returns true if the tensor's memory is that of a file in this folder, which has no name any more.
inline bool in_nameless_file(const torch::Tensor& tensor, const std::filesystem::path& folder) {
  const auto place = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const auto prefix = std::filesystem::canonical(folder).native() + "/";
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream fields(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    fields >> std::hex >> begin >> dash >> end;
    if (place < begin || place >= end) continue;
    return line.find(" " + prefix) != std::string::npos && line.ends_with(" (deleted)");
  }
  return false;
}

}  // namespace lockstep::testing
