// lockstep demo gluon: the steps of the concise chapter's Gluon tab.
#pragma once

#include <string>

namespace lockstep {

// Initialises ResNet-18 on all devices, computes a batch of four shard by shard, reads a parameter on each
// device and on one that does not have it, and evaluates on all devices in parallel.
void run_demo_gluon(const std::string& devices);

}  // namespace lockstep
