// Named ranges for a profiler that watches the program (Nsight Systems, through NVTX). Without one, and in a
// build without CUDA, they cost nothing to speak of.
#pragma once

#include <string>

namespace lockstep {

// From its construction to its destruction, in one thread; ranges nest. No torch in here.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();  // NOLINT(performance-trivially-destructible): it is not in a build with CUDA
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace lockstep
