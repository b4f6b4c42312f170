#include <lockstep/parallel/chapter/sgd.h>

#include <torch/types.h>

namespace lockstep {

void sgd(const Params& params, double lr, int64_t batch_size) {
  const torch::NoGradGuard no_grad;
  for (auto param : params) {
    auto& grad = param.mutable_grad();
    param.sub_(grad, /*alpha=*/lr / static_cast<double>(batch_size));
    grad.zero_();
  }
}

}  // namespace lockstep
