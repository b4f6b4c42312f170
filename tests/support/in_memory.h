// Where tests write a lot.
#pragma once

#include <filesystem>

namespace lockstep::testing {

// A folder where fsync() costs nothing.
inline std::filesystem::path in_memory() {
  return std::filesystem::exists("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
}

}  // namespace lockstep::testing
