// broadcast_module() and broadcast_buffers() of gradient_sync.h.
#include <torch/nn/module.h>

#include <utility>

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/gradients/flat_tensors.h>
#include <lockstep/parallel/gradients/tensor_lines.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// The first of the elements that lie in one place, as those of an expanded tensor do.
torch::Tensor unexpanded(torch::Tensor tensor) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.stride(dim) == 0 && tensor.size(dim) > 1) tensor = tensor.narrow(dim, 0, 1);
  }
  return tensor;
}

// Broadcasts them all at once.
void broadcast_tensors(const std::vector<NamedTensor>& named, Endpoint& endpoint, int root) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> tensors, flat;
  std::vector<Work> works;
  for (const auto& item : named) {
    tensors.push_back(unexpanded(item.tensor.detach()));
    flat.push_back(in_memory_order(tensors.back()));
    works.push_back(endpoint.broadcast(flat.back(), root));
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    works[i].wait();
    const auto& tensor = tensors[i];
    if (!tensor.is_non_overlapping_and_dense()) tensor.copy_(flat[i].view_as(tensor));
  }
}

}  // namespace

void broadcast_module(torch::nn::Module& module, Endpoint& endpoint, int root) {
  agree_on_module(module, endpoint);
  broadcast_tensors(distinct_tensors(module), endpoint, root);
}

void broadcast_buffers(torch::nn::Module& module, Endpoint& endpoint, int root) {
  broadcast_tensors(distinct_buffers(module), endpoint, root);
}

}  // namespace lockstep
