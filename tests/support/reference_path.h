// The files of tests/reference/, which Python has written. For tests that are compiled with
// LOCKSTEP_REFERENCE_DIR.
#pragma once

#include <cstdlib>
#include <string>

namespace lockstep::testing {

// ctest names the folder: a build may have come from another machine.
inline std::string reference_path(const std::string& name) {
  const char* folder = std::getenv("LOCKSTEP_TEST_REFERENCE");
  return std::string(folder == nullptr ? LOCKSTEP_REFERENCE_DIR : folder) + "/" + name;
}

}  // namespace lockstep::testing
