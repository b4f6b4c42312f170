#include <lockstep/parallel/batch_norm/shared_buffers.h>

#include <torch/nn/module.h>

#include <lockstep/support/module_tensors.h>

namespace lockstep {
namespace {

// This replica's share of all rows, () double on its device.
torch::Tensor weight_of(int64_t rows, Endpoint& endpoint) {
  const auto options = torch::TensorOptions(torch::kFloat64).device(endpoint.device());
  const auto own = torch::full({}, static_cast<double>(rows), options);
  auto all = own.clone();
  endpoint.allreduce_sum(all).wait();
  const double equal = 1.0 / endpoint.world_size();
  return torch::where(all > 0, own / all, torch::full({}, equal, options));
}

}  // namespace

SharedBuffers::SharedBuffers(torch::nn::Module& module, Endpoint& endpoint, BnPolicy policy, int64_t rows) {
  const torch::NoGradGuard no_grad;
  for (const auto& buffer : distinct_buffers(module)) buffers_.push_back(buffer.tensor);
  if (buffers_.empty() || endpoint.world_size() == 1) {
    buffers_.clear();
    return;
  }
  const auto weight = weight_of(rows, endpoint);
  for (auto& buffer : buffers_) {
    own_.push_back(buffer.clone());
    if (policy == BnPolicy::kAverage && buffer.is_floating_point()) {
      // In double, so that equal statistics keep their bits.
      auto sum = buffer.to(torch::kFloat64) * weight;
      endpoint.allreduce_sum(sum).wait();
      buffer.copy_(sum);
    } else {
      endpoint.broadcast(buffer, 0).wait();
    }
  }
}

SharedBuffers::~SharedBuffers() {
  const torch::NoGradGuard no_grad;
  try {
    for (size_t i = 0; i < own_.size(); ++i) buffers_[i].copy_(own_[i]);
  } catch (const std::exception&) {
    // The GPU has failed. Its buffers are lost, and every later use of it throws.
  }
}

}  // namespace lockstep
