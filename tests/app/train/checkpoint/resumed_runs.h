// Runs that keep checkpoints, for tests of going on with them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>

#include <lockstep/tests/app/train_process.h>

namespace lockstep::testing {

inline const Words kCommon = {"--log-every", "2", "--print-weights-hash", "--limit-test", "64"};

// The step of the newest checkpoint of this run; 0 if there is none.
inline int64_t newest_step(const std::filesystem::path& run) {
  int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints")) {
    const auto name = entry.path().filename().native();
    if (name.starts_with("step-")) newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
  }
  return newest;
}

}  // namespace lockstep::testing
