// Collectives of the local replicas, without NCCL: among themselves by root, two_shot or ring, and with those
// of other processes by gloo.
#pragma once

#include <memory>

#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/communicator.h>

namespace lockstep {

// options.algorithm: kGloo with several processes in the layout; kRoot, kTwoShot or kRing with one. Works on
// any list of devices that is not empty. Opens channels to the other processes, so all processes call it.
// Throws as Processes::open_channels() does.
std::unique_ptr<Communicator> make_local_communicator(CommunicatorOptions options, const RankLayout& layout);

}  // namespace lockstep
