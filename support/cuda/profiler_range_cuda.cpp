#include <lockstep/support/cuda/profiler_range.h>

#include <nvtx3/nvToolsExt.h>

namespace lockstep {

ProfilerRange::ProfilerRange(const std::string& name) { nvtxRangePushA(name.c_str()); }
ProfilerRange::~ProfilerRange() { nvtxRangePop(); }

}  // namespace lockstep
