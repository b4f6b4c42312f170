// The algorithms of allreduce that sum within one process.
#pragma once

#include <span>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

struct LocalRound;

struct LocalAlgorithm {
  Allreduce allreduce;
  // Leaves the sum in every local replica's tensor. The caller calls round.barrier() before and after.
  void (*sum)(const LocalRound& round);
  const char* text;  // where it sums: "on the first replica"
};

// One row each.
std::span<const LocalAlgorithm> local_algorithms();

// Null for an algorithm that sums between processes or devices by other means.
const LocalAlgorithm* find_local_algorithm(Allreduce allreduce);

}  // namespace lockstep
