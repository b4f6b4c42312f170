// The two halves of an allreduce, for tensors of which each rank owns a part: Endpoint::reduce_scatter() and
// Endpoint::gather_parts().
#pragma once

#include <torch/types.h>

#include <exception>
#include <string>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

struct LocalRound;

// The error (UsageError) when a collective of this name cannot take the tensor with these bounds; null when
// it can.
std::exception_ptr parts_problem(const Endpoint& endpoint, const std::string& what,
                                 const torch::Tensor& tensor, const PartBounds& bounds);

// In one process. Each replica sums its own part over all, in the order of their ranks, as two_shot and root
// do. The caller calls round.barrier() before and after.
void reduce_scatter_locally(const LocalRound& round, const PartBounds& bounds);

// In one process. Each replica copies its own part to all others. The caller calls round.barrier() before and
// after.
void gather_parts_locally(const LocalRound& round, const PartBounds& bounds);

}  // namespace lockstep
