// The error for a run that did not fit into memory.
#pragma once

#include <string>

#include <lockstep/app/train/plan/plan.h>
#include <lockstep/support/error.h>

namespace lockstep {

// words: the message of torch's allocator. For a GPU the error names the GPU, the bytes that were asked for,
// the bytes that are free, and a batch size that should fit by the plan's estimate. For the CPU it has
// torch's words.
MemoryError out_of_memory(const std::string& words, const TrainPlan& plan);

}  // namespace lockstep
