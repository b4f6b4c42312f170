// How several processes choose the algorithm that sums between them.
#pragma once

#include <torch/types.h>

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

// The wish that one process tells the others.
struct AllreduceWish {
  std::string wanted = {};        // the name of an Allreduce
  std::string nccl_problem = {};  // why NCCL cannot join its devices; empty: it can
  std::vector<NamedGpu> gpus = {};
};

AllreduceWish own_wish(Allreduce wanted, std::span<const torch::Device> devices);

// For ProcessGroup::gather(). Of another text read_wish() returns what it can.
std::string text_of_wish(const AllreduceWish& wish);
AllreduceWish read_wish(const std::string& text);

// The choice of processes that have told each other this, the same in each: kAuto is kNccl if no GPU is there
// twice and NCCL can join the devices of every process, else kGloo. Throws UsageError when they want
// different algorithms, for one that does not span processes, and for kNccl where NCCL cannot serve.
Allreduce choose_for_all(Allreduce wanted, const std::vector<AllreduceWish>& wishes);

}  // namespace lockstep
