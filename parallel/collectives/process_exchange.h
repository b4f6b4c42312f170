// The exchange of the local replicas with the other processes.
//
// Channels take host memory. A GPU's tensor goes through pinned memory: its communication thread waits until
// its stream has copied it there, and then for the other processes.
#pragma once

#include <torch/types.h>

#include <memory>
#include <vector>

#include <lockstep/parallel/collectives/channel.h>
#include <lockstep/parallel/collectives/local_round.h>
#include <lockstep/parallel/collectives/rank_layout.h>

namespace lockstep {

// The exchange of one communicator. The barriers of its collectives order the threads that use a channel.
struct ProcessExchange {
  RankLayout layout;
  std::vector<std::unique_ptr<Channel>> channels = {};  // one per chunk of a sum; copies take the first
  // The tensors of the all_gather in flight, in host memory.
  std::vector<torch::Tensor> own = {};  // by local replica, (n) each
  torch::Tensor all = {};               // (processes, most_replicas, n)
};

// The tensor itself if it is in host memory, else as much pinned memory, with any content.
torch::Tensor host_room(const torch::Tensor& tensor);

// The tensor itself if it is in host memory, else a copy in pinned memory, finished on return.
torch::Tensor on_host(const torch::Tensor& tensor);

// Takes the place of a collective on no elements: compares the call with that of the other processes.
void compare_with_other_processes(const LocalRound& round);

// Brings the tensor of rank `root` to one local replica, whose number it returns, and calls barrier().
int receive_from(const LocalRound& round, int root);

// rows[r] (n) becomes rank r's tensor. rows (world_size, n) on any device, each local replica its own. Calls
// barrier().
void gather_from_all(const LocalRound& round, const torch::Tensor& rows);

}  // namespace lockstep
