// A network whose batch norms are synchronised, and single steps of trainers with BnPolicy::kSync.
#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/models/batch_norm.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/support/model_factory.h>
#include <lockstep/tests/parallel/training/layouts.h>
#include <lockstep/tests/support/whole_batch.h>

namespace lockstep::testing {

// Rows norms of every rank, in the order of backward. looks: called between the first two of them.
class NormsImpl : public torch::nn::Module {
 public:
  explicit NormsImpl(std::function<void(const torch::Tensor&)> looks = {})
      : conv_(register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 5).stride(4)))),
        norm2_(register_module("norm2", BatchNorm2d(4))),
        norm3_(register_module("norm3", BatchNorm3d(torch::nn::BatchNormOptions(2).momentum(std::nullopt)))),
        inner_(register_module("inner", torch::nn::Linear(144, 8))),
        norm1_(register_module("norm1", BatchNorm1d(8))),
        outer_(register_module("outer", torch::nn::Linear(8, 10))),
        looks_(std::move(looks)) {
    const torch::NoGradGuard no_grad;
    double phase = 0;
    for (auto& param : parameters()) {  // the same whenever it is built
      const auto numbers = torch::arange(param.numel(), torch::kFloat32).mul(.7).add(++phase).sin();
      param.copy_(numbers.mul(.3).add(param.dim() == 1 ? .5 : 0).view_as(param));
    }
  }

  torch::Tensor forward(const torch::Tensor& X) {
    auto h = norm2_(conv_(X)).relu();  // (n, 4, 6, 6)
    if (looks_) looks_(h);
    h = norm3_(h.view({-1, 2, 2, 6, 6})).relu();
    return outer_(norm1_(inner_(h.flatten(1))).relu());
  }

 private:
  torch::nn::Conv2d conv_;
  BatchNorm2d norm2_;
  BatchNorm3d norm3_;
  torch::nn::Linear inner_;
  BatchNorm1d norm1_;
  torch::nn::Linear outer_;
  const std::function<void(const torch::Tensor&)> looks_;
};

inline ModelFactory norms() { return model_factory<NormsImpl>(); }

inline TrainerOptions options_of(int world, BnPolicy policy = BnPolicy::kSync) {
  TrainerOptions options;
  options.devices.assign(static_cast<size_t>(world), torch::kCPU);
  options.threads = 1;
  options.lr = {.lr = 1};
  options.bn = policy;
  options.check_sync = 1;  // of the statistics, too
  options.replica.precision = Precision::kFp64;
  return options;
}

// One step of a trainer, from the model's own weights.
inline std::vector<NamedTensor> stepped(const ModelFactory& factory, const TrainerOptions& options,
                                        const Rows& batch) {
  const auto rows = source(std::make_shared<RowSource>(32));
  Trainer trainer(factory, rows, rows, options);
  trainer.step(batch);
  return trainer.weights(trainer.local_size() - 1);
}

}  // namespace lockstep::testing
