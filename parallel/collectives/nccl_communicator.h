// Collectives between distinct GPUs through NCCL, in one process or several. Only nccl_communicator_cuda.cpp
// and its nccl_ranks.h include NCCL; in a build without CUDA nccl_communicator_stub.cpp throws in their
// place.
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

// The error when NCCL cannot join these devices of one process; null when it can. UsageError if a device is a
// CPU or a GPU is listed twice (NCCL allows one rank per GPU), DeviceError in a build without NCCL.
std::exception_ptr nccl_problem(std::span<const torch::Device> devices);

// The id that all ranks of one communicator share; one process makes it and sends it to the others. Bytes,
// not text. Throws DeviceError if NCCL cannot start, and in a build without NCCL.
std::string make_nccl_id();

struct NcclOptions {
  std::vector<torch::Device> devices;  // of this process, one rank each, distinct
  int first_rank = 0;                  // rank of devices.front()
  int world_size = 0;                  // ranks of all processes
  std::string id;                      // from make_nccl_id()
  // Limit for joining the ranks, and for each collective from its posting to its end on the GPU. It must be
  // longer than any rank may lag behind another, such as in the first steps, when torch chooses kernels.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  Trace* trace = nullptr;  // see CommunicatorOptions
};

// Blocks until all ranks have joined. Each local rank has a communication thread with its own stream; one
// more thread watches the collectives in flight. If NCCL reports a collective as failed, or it does not
// finish within the timeout, all local ranks are aborted with a PeerError that names device, operation and
// sequence number: kernels that wait for a peer end, and every wait for them returns. Throws DeviceError when
// the ranks cannot be joined, PeerError when some do not join in time, and the error of nccl_problem().
std::unique_ptr<Communicator> make_nccl_communicator(NcclOptions options);

}  // namespace lockstep
