// The memory of planned runs: refused before it is taken, explained when it was not there.
#pragma once

#include <functional>
#include <span>
#include <string>

#include <lockstep/app/train/plan/plan.h>
#include <lockstep/support/error.h>

namespace lockstep {

// Throws MemoryError with both figures if the host has less memory free than the CPU replicas of these plans
// need, all of them alive at once. At least one plan. in_files: asked where memory is short; true:
// checkpoints need none of it (checkpoint_memory.h).
void need_memory_for(std::span<const TrainPlan> plans, const std::function<bool()>& in_files = {});

// The error for a run that did not fit. words: the message of torch's allocator. For a GPU the error names
// the GPU, the bytes that were asked for, the bytes that are free, and a batch size that should fit by the
// plan's estimate. For the CPU it has torch's words.
MemoryError out_of_memory(const std::string& words, const TrainPlan& plan);

}  // namespace lockstep
