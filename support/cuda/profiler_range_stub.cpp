// Takes the place of profiler_range_cuda.cpp in a build without CUDA; does nothing.
#include <lockstep/support/cuda/profiler_range.h>

namespace lockstep {

ProfilerRange::ProfilerRange(const std::string&) {}
ProfilerRange::~ProfilerRange() = default;

}  // namespace lockstep
