// How many threads this process has.
#pragma once

#include <filesystem>
#include <iterator>

namespace lockstep::testing {

inline auto thread_count() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/task"),
                       std::filesystem::directory_iterator());
}

}  // namespace lockstep::testing
