#include <lockstep/parallel/collectives/gather_bytes.h>

#include <algorithm>
#include <cstring>

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

std::vector<std::string> gather_texts(const std::string& own, Endpoint& endpoint) {
  const auto bytes = torch::empty({static_cast<int64_t>(own.size())}, torch::kUInt8);
  if (!own.empty()) std::memcpy(bytes.mutable_data_ptr(), own.data(), own.size());
  std::vector<std::string> texts;
  for (const auto& text : gather_bytes(bytes, endpoint)) {
    texts.emplace_back(static_cast<const char*>(text.const_data_ptr()), text.nbytes());
  }
  return texts;
}

torch::Tensor broadcast_bytes(const torch::Tensor& own, Endpoint& endpoint) {
  const bool root = endpoint.rank() == 0;
  const auto on_device = torch::TensorOptions().device(endpoint.device());
  const auto length = torch::full({1}, root ? own.numel() : 0, on_device.dtype(torch::kInt64));
  endpoint.broadcast(length, 0).wait();
  const auto bytes = torch::empty({length.item<int64_t>()}, on_device.dtype(torch::kUInt8));
  if (root) bytes.copy_(own);
  endpoint.broadcast(bytes, 0).wait();
  const auto on_host = bytes.cpu();
  if (const auto error = endpoint.error()) std::rethrow_exception(error);
  return on_host;
}

}  // namespace lockstep
