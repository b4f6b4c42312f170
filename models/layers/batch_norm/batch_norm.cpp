#include <lockstep/models/batch_norm.h>

#include <lockstep/models/layers/batch_norm/whole_batch_norm.h>
#include <lockstep/support/error.h>

namespace lockstep {

template <class Torch, class Impl>
torch::Tensor BatchNormImpl<Torch, Impl>::forward(const torch::Tensor& input) {
  if (!exchange()) return Torch::forward(input);
  Torch::_check_input_dim(input);
  double momentum = this->options.momentum().value_or(0);
  if (this->options.track_running_stats()) {
    this->num_batches_tracked += 1;
    // Without a momentum the running statistics are means over all batches, as torch's.
    if (!this->options.momentum()) momentum = 1 / this->num_batches_tracked.template item<double>();
  }
  return whole_batch_norm(input,
                          {.weight = this->weight,
                           .bias = this->bias,
                           .running_mean = this->running_mean,
                           .running_var = this->running_var,
                           .momentum = momentum,
                           .eps = this->options.eps()},
                          *exchange());
}

// Torch's clone() makes one of torch's own.
template <class Torch, class Impl>
std::shared_ptr<torch::nn::Module> BatchNormImpl<Torch, Impl>::clone(
    const std::optional<torch::Device>& device) const {
  const auto torchs = std::dynamic_pointer_cast<Torch>(Torch::clone(device));
  auto copy = std::make_shared<Impl>(this->options);
  static_cast<Torch&>(*copy) = *torchs;
  return copy;
}

template <class Torch, class Impl>
void BatchNormImpl<Torch, Impl>::_check_input_dim(const torch::Tensor& input) {
  if (exchange()) {
    throw UsageError(
        "a batch normalisation of lockstep was called as one of torch's, which cannot take the "
        "statistics of the whole batch",
        "hold it as lockstep::BatchNorm1d, 2d or 3d, not as torch's base class");
  }
  Torch::_check_input_dim(input);
}

template class BatchNormImpl<torch::nn::BatchNorm1dImpl, BatchNorm1dImpl>;
template class BatchNormImpl<torch::nn::BatchNorm2dImpl, BatchNorm2dImpl>;
template class BatchNormImpl<torch::nn::BatchNorm3dImpl, BatchNorm3dImpl>;

}  // namespace lockstep
