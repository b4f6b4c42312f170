// torch's batch normalisations for your own models, which can also take the statistics of the whole batch:
// with BnPolicy::kSync (parallel/training/bn_policy.h), or in your own loop with a BatchNormSync.
//
//   lockstep::BatchNorm2d norm(64);    // instead of torch::nn::BatchNorm2d norm(64);
//
// Options, parameters, buffers and their names are torch's, so weights can be exchanged. Without an exchange
// between replicas, and in evaluation mode, they compute what torch's do, with the same bits. Torch's own
// holders cannot be converted: in C++ they call torch's forward().
#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>

#include <memory>
#include <optional>

#include <lockstep/support/batch_statistics.h>

namespace lockstep {

// Torch: one of torch's batch normalisations. Impl: the class that derives from this one.
template <class Torch, class Impl>
class BatchNormImpl : public Torch, public WholeBatchLayer {
 public:
  using Torch::Torch;

  // Returns the normalised input, of the same shape. In training mode with an exchange it is a collective,
  // accepts 0 rows, and throws UsageError on all replicas if all rows together give fewer than two values per
  // channel.
  torch::Tensor forward(const torch::Tensor& input);

  // A deep copy, of lockstep's type and without an exchange.
  std::shared_ptr<torch::nn::Module> clone(
      const std::optional<torch::Device>& device = std::nullopt) const override;

  void exchange_statistics(StatisticsExchange* exchange) override { exchange_ = exchange; }

  // The exchange of the next forward()'s statistics; null if it exchanges none.
  StatisticsExchange* exchange() const { return this->is_training() ? exchange_ : nullptr; }

 protected:
  // Torch's forward() calls it too. Throws UsageError if that would normalise each replica's rows alone.
  void _check_input_dim(const torch::Tensor& input) override;

 private:
  StatisticsExchange* exchange_ = nullptr;
};

// (n, c) or (n, c, length)
class BatchNorm1dImpl : public BatchNormImpl<torch::nn::BatchNorm1dImpl, BatchNorm1dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
};
extern template class BatchNormImpl<torch::nn::BatchNorm1dImpl, BatchNorm1dImpl>;
TORCH_MODULE(BatchNorm1d);

// (n, c, height, width)
class BatchNorm2dImpl : public BatchNormImpl<torch::nn::BatchNorm2dImpl, BatchNorm2dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
};
extern template class BatchNormImpl<torch::nn::BatchNorm2dImpl, BatchNorm2dImpl>;
TORCH_MODULE(BatchNorm2d);

// (n, c, depth, height, width)
class BatchNorm3dImpl : public BatchNormImpl<torch::nn::BatchNorm3dImpl, BatchNorm3dImpl> {
 public:
  using BatchNormImpl::BatchNormImpl;
};
extern template class BatchNormImpl<torch::nn::BatchNorm3dImpl, BatchNorm3dImpl>;
TORCH_MODULE(BatchNorm3d);

}  // namespace lockstep
