#include <lockstep/parallel/collectives/gather_bytes.h>

#include <algorithm>

namespace lockstep {
namespace {

// tensor: (n), of the same size on all ranks. Returns (world, n) on the host.
torch::Tensor gather_to_host(const torch::Tensor& tensor, Endpoint& endpoint) {
  const auto sent = tensor.to(endpoint.device());
  const auto all = torch::empty({endpoint.world_size(), sent.numel()}, sent.options());
  endpoint.all_gather(sent, all).wait();
  const auto on_host = all.cpu();
  // On a GPU a collective may fail after wait(): then these are no results.
  if (const auto error = endpoint.error()) std::rethrow_exception(error);
  return on_host;
}

}  // namespace

std::vector<torch::Tensor> gather_bytes(const torch::Tensor& own, Endpoint& endpoint) {
  const auto lengths = gather_to_host(torch::full({1}, own.numel(), torch::kInt64), endpoint);  // (world, 1)
  const auto padded = torch::zeros({lengths.max().item<int64_t>()}, torch::kUInt8);
  padded.narrow(0, 0, own.numel()).copy_(own);
  const auto all = gather_to_host(padded, endpoint);
  std::vector<torch::Tensor> result;
  for (int64_t rank = 0; rank < all.size(0); ++rank) {
    result.push_back(all[rank].narrow(0, 0, lengths[rank][0].item<int64_t>()));
  }
  return result;
}

}  // namespace lockstep
