// The twin of profiler_range_cuda.cpp for a build without CUDA: there is no profiler to tell.
#include <lockstep/support/profiler_range.h>

namespace lockstep {

ProfilerRange::ProfilerRange(const std::string&) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace lockstep
