// The tensors of all ranks as one.
#pragma once

#include <torch/types.h>

#include <lockstep/parallel/communicator.h>

namespace lockstep {

// A collective: returns the tensors of all ranks in order, (world, sizes of own). own: contiguous, on the
// endpoint's device, of the same sizes and dtype on all ranks. On a GPU the current stream waits for them.
// Throws the error that ended a collective.
inline torch::Tensor gather_tensors(const torch::Tensor& own, Endpoint& endpoint) {
  auto sizes = own.sizes().vec();
  sizes.insert(sizes.begin(), endpoint.world_size());
  auto all = torch::empty(sizes, own.options());
  endpoint.all_gather(own, all).wait();
  return all;
}

}  // namespace lockstep
