// How much a process sends to the others, by formula. docs/scaling-out.md has the same.
#pragma once

#include <cstdint>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// Bytes that each of these processes sends for a sum of a tensor of so many bytes by kGloo, however many
// replicas it has: 2 (N-1)/N times the tensor; half of that if it is compressed (allreduce_gradients of float
// numbers). Without headers, and without the few zeros that fill up uneven parts.
int64_t wire_bytes_of_sum(int64_t bytes, int processes, Compress compress = Compress::kNone);

// The same for an all_gather of such a tensor. most_replicas: of any process.
int64_t wire_bytes_of_gather(int64_t bytes, int processes, int most_replicas);

}  // namespace lockstep
