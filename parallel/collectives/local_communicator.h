// Collectives between replicas of one process in its own memory: root, two_shot and ring.
#pragma once

#include <memory>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// options.algorithm: kRoot, kTwoShot or kRing. On a list of any devices.
std::unique_ptr<Communicator> make_local_communicator(CommunicatorOptions options);

}  // namespace lockstep
