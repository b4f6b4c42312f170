// The models that a machine has room for, for the checks of its memory.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// "room for AdamW and 503 million parameters on each of 8 replicas, 894 million with --shard optimizer":
// weights, gradients and moments in fp32. bytes: for each replica.
std::string largest_model_text(int64_t bytes, int replicas);

}  // namespace lockstep
