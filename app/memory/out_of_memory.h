// What to tell somebody whose run did not fit on a GPU.
#pragma once

#include <string>

#include <lockstep/app/train/plan.h>
#include <lockstep/support/error.h>

namespace lockstep {

// words: what torch's allocator says of it, which names the GPU, what was asked for and what is free. The
// message tells that, and the batch size that would fit by the plan's estimate. Of the processor's memory it
// gives torch's own words.
MemoryError out_of_memory(const std::string& words, const TrainPlan& plan);

}  // namespace lockstep
