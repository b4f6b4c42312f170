#include <lockstep/parallel/get_params.h>

#include <torch/types.h>

namespace lockstep {

Params get_params(const Params& params, torch::Device device) {
  Params copies;
  for (const auto& param : params) {
    auto copy = param.detach().to(device, param.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
    copy.requires_grad_();
    copy.mutable_grad() = torch::zeros_like(copy);
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace lockstep
