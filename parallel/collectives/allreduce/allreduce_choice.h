// How several processes choose the algorithm that sums between them.
#pragma once

#include <torch/types.h>

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// A GPU, as other processes can tell it from theirs. Two processes may give one GPU different indices, and
// different GPUs the same one: only the UUID says which it is.
struct NamedGpu {
  std::string uuid = {};   // empty: unknown
  std::string place = {};  // its host and index, which must do where there is no UUID
};

// The algorithms that the devices of a process support, as it tells the others.
struct AllreduceSupport {
  std::string nccl_problem = {};  // why NCCL cannot join its devices; empty: it can
  std::vector<NamedGpu> gpus = {};
};

AllreduceSupport support_of(std::span<const torch::Device> devices);

void to_json(nlohmann::json& value, const AllreduceSupport& support);
void from_json(const nlohmann::json& value, AllreduceSupport& support);

// The choice of processes that have told each other this and want the same, the same in each: kAuto is kNccl
// if no GPU is there twice and NCCL can join the devices of every process, else kGloo. Throws UsageError for
// an algorithm that does not span processes, and for kNccl where NCCL cannot serve. all: by process.
Allreduce choose_for_all(Allreduce wanted, const std::vector<AllreduceSupport>& all);

}  // namespace lockstep
