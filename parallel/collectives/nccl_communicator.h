// Collectives between distinct GPUs through NCCL, in one process or in many. This header's sources are the
// only ones that know NCCL; their twin without it refuses.
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/nccl_version.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// Why NCCL cannot join these devices of one process; null if it can. DeviceError without NCCL, UsageError for
// what is not a GPU, and for a GPU that is listed twice (NCCL knows one rank a GPU).
std::exception_ptr nccl_problem(std::span<const torch::Device> devices);

// What all ranks of one communicator must be given alike: made once, by one process. Bytes, not text.
std::string make_nccl_id();

struct NcclOptions {
  std::vector<torch::Device> devices;  // of this process, one rank each, distinct
  int first_rank = 0;                  // rank of devices.front()
  int world_size = 0;                  // ranks of all processes
  std::string id;                      // from make_nccl_id()
  // For the ranks to find each other, and for a collective from its posting to its end on the GPU. Longer
  // than any rank may lag behind another, such as while a GPU's kernels are chosen in the first steps.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  Trace* trace = nullptr;  // as CommunicatorOptions has it
};

// Blocks until all ranks are there. Each local rank has a communication thread with a stream of its own; one
// more thread watches what is under way. A collective that NCCL reports as failed, or that is not over within
// the timeout, aborts all local ranks with a PeerError that names device, operation and sequence number:
// kernels that wait for a peer end, and so does every wait for them. Throws DeviceError when the ranks cannot
// be joined, PeerError when some do not come in time, and what nccl_problem() says.
std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options);

}  // namespace lockstep
