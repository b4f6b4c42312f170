// Bytes that all ranks tell each other.
#pragma once

#include <torch/types.h>

#include <vector>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// A collective: returns every rank's bytes, each (n) uint8 on the host; the lengths may differ. own: (n)
// uint8 on the host. Waits for a GPU. Throws the error that ended a collective.
std::vector<torch::Tensor> gather_bytes(const torch::Tensor& own, Endpoint& endpoint);

}  // namespace lockstep
