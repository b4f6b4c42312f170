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

// Each replica copies its own part to all others of this process. The caller calls round.barrier() before and
// after.
void gather_parts_locally(const LocalRound& round, const PartBounds& bounds);

// The same between processes. The parts of each process are added in the order of its ranks, and their sums
// in the order of processes, as allreduce_gloo() does.
void reduce_scatter_gloo(const LocalRound& round, const PartBounds& bounds);
void gather_parts_gloo(const LocalRound& round, const PartBounds& bounds);

}  // namespace lockstep
