// Collectives between the replicas of one process, without NCCL: root, two_shot and ring.
#pragma once

#include <memory>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// options.algorithm: kRoot, kTwoShot or kRing; another one makes allreduce_sum() throw UsageError. Works on
// any list of devices. Throws UsageError for an empty list.
std::unique_ptr<Communicator> make_local_communicator(CommunicatorOptions options);

}  // namespace lockstep
