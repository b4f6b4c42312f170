// Bytes that all ranks tell each other.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// A collective: returns every rank's bytes, each (n) uint8 on the host; the lengths may differ. own: (n)
// uint8 on the host. Waits for a GPU. Throws the error that ended a collective.
std::vector<torch::Tensor> gather_bytes(const torch::Tensor& own, Endpoint& endpoint);

// The same for texts.
std::vector<std::string> gather_texts(const std::string& own, Endpoint& endpoint);

// A collective: returns rank 0's bytes, (n) uint8 on the host. Those of other ranks are ignored. Waits for a
// GPU. Throws the error that ended a collective.
torch::Tensor broadcast_bytes(const torch::Tensor& own, Endpoint& endpoint);

}  // namespace lockstep
