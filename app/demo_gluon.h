// lockstep demo gluon: the concise chapter's Gluon tab, step by step.
#pragma once

#include <string>

namespace lockstep {

// Initialises ResNet-18 on all devices at once, sends a batch of four through it shard by shard, reads a
// parameter on each device and on one that has none, and evaluates on all devices in parallel.
void run_demo_gluon(const std::string& devices);

}  // namespace lockstep
