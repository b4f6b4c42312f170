// The communicator for everything but NCCL. Threads of the host do each replica's part of a collective, and
// queue it on the replica's stream if that is a GPU. It joins replicas of one process (root, two_shot, ring)
// or of several (gloo).
#pragma once

#include <memory>

#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// options.algorithm: kGloo with several processes in the layout; kRoot, kTwoShot or kRing with one. Works on
// any list of devices that is not empty. Opens channels to the other processes, so all processes call it.
// Throws as open_channels() does.
std::unique_ptr<Communicator> make_host_communicator(CommunicatorOptions options, const RankLayout& layout);

}  // namespace lockstep
