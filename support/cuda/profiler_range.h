// Named ranges for a profiler (Nsight Systems, through NVTX). Without a profiler, and in a build without
// CUDA, they cost almost nothing.
#pragma once

#include <string>

namespace lockstep {

// A range lasts from construction to destruction, which must be in one thread. Ranges nest. Needs no torch.
class ProfilerRange {
 public:
  explicit ProfilerRange(const std::string& name);
  ~ProfilerRange();  // NOLINT(performance-trivially-destructible): it is not in a build with CUDA
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace lockstep
