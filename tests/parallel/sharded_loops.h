// The same loop with an optimizer of torch::optim, and with a ShardedOptimizer around it.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/parallel/replicas.h>
#include <lockstep/parallel/sharded_optimizer.h>
#include <lockstep/tests/parallel/replicas/loops.h>

namespace lockstep::testing {

// With buckets of kFewBytes: two parameters of several blocks, each larger than a bucket, a frozen one, and
// many small ones, some with fewer elements than replicas, one of none, one of the channels_last format.
class ShapesImpl : public torch::nn::Module {
 public:
  explicit ShapesImpl(torch::ScalarType dtype) {
    inner = add("inner", {90, 131}, dtype);
    inner_bias = add("inner_bias", {131}, dtype);
    gain = add("gain", {1}, dtype);
    shift = add("shift", {}, dtype);
    none = add("none", {0, 3}, dtype);
    kernel = register_parameter("kernel",
                                numbers({4, 2, 3, 3}, dtype).contiguous(torch::MemoryFormat::ChannelsLast));
    frozen = add("frozen", {131, 131}, dtype);
    frozen.requires_grad_(false);
    middle = add("middle", {131, 70}, dtype);
    middle_bias = add("middle_bias", {70}, dtype);
    outer = add("outer", {70, 3}, dtype);
  }

  torch::Tensor forward(const torch::Tensor& X) {
    const auto first = torch::tanh(X.matmul(inner) + inner_bias);
    const auto second = torch::tanh((first + first.matmul(frozen)).matmul(middle) + middle_bias);
    return (second * gain + shift).matmul(outer) + kernel.square().sum() + none.sum();
  }

  torch::Tensor inner, inner_bias, gain, shift, none, kernel, frozen, middle, middle_bias, outer;

 private:
  static torch::Tensor numbers(const std::vector<int64_t>& sizes, torch::ScalarType dtype) {
    const auto like = torch::empty(sizes);
    return torch::arange(like.numel(), torch::kFloat64).mul(.7).sin().mul(.1).view(sizes).to(dtype);
  }
  torch::Tensor add(const std::string& name, const std::vector<int64_t>& sizes, torch::ScalarType dtype) {
    return register_parameter(name, numbers(sizes, dtype));
  }
};
TORCH_MODULE(Shapes);

inline constexpr int64_t kFewBytes = 30'000;

using OptimizerHolder = std::unique_ptr<torch::optim::Optimizer>;

struct ShardedCase {
  std::string name;
  std::function<OptimizerHolder(ShapesImpl&)> make;
  torch::ScalarType dtype = torch::kFloat32;
  double clip_norm = 0;
};

template <class Kind, class Options>
std::function<OptimizerHolder(ShapesImpl&)> maker_of(Options options) {
  return [options](ShapesImpl& net) { return std::make_unique<Kind>(net.parameters(), options); };
}

inline const std::vector<ShardedCase> kShardedKinds = {
    {"SGD", maker_of<torch::optim::SGD>(torch::optim::SGDOptions(.05).weight_decay(.01))},
    {"SGD with momentum",
     maker_of<torch::optim::SGD>(torch::optim::SGDOptions(.05).momentum(.9).nesterov(true))},
    {"SGD with dampening",
     maker_of<torch::optim::SGD>(torch::optim::SGDOptions(.05).momentum(.9).dampening(.1))},
    {"Adam", maker_of<torch::optim::Adam>(torch::optim::AdamOptions(.01))},
    {"Adam with amsgrad",
     maker_of<torch::optim::Adam>(torch::optim::AdamOptions(.01).amsgrad(true).weight_decay(.01))},
    {"AdamW", maker_of<torch::optim::AdamW>(torch::optim::AdamWOptions(.01))},
    {"RMSprop",
     maker_of<torch::optim::RMSprop>(torch::optim::RMSpropOptions(.01).momentum(.9).centered(true))},
    {"Adagrad", maker_of<torch::optim::Adagrad>(
                    torch::optim::AdagradOptions(.01).lr_decay(.01).initial_accumulator_value(.1))},
};

struct Unsharded {
  explicit Unsharded(const ShardedCase& kind) : net(kind.dtype), optimizer(kind.make(*net)) {}

  void update(Endpoint&) { optimizer->step(); }
  void zero_grad() { optimizer->zero_grad(); }
  auto& groups() { return optimizer->param_groups(); }

  Shapes net;
  OptimizerHolder optimizer;
};

struct Sharded {
  explicit Sharded(const ShardedCase& kind)
      : net(kind.dtype), optimizer(kind.make(*net), {.bucket_bytes = kFewBytes}) {}

  void update(Endpoint& endpoint) { optimizer.step(endpoint); }
  void zero_grad() { optimizer.zero_grad(); }
  auto& groups() { return optimizer.param_groups(); }

  Shapes net;
  ShardedOptimizer optimizer;
};

template <class T>
std::unique_ptr<Replicas<T>> loop_of(ReplicasOptions options, const ShardedCase& kind) {
  auto loop = std::make_unique<Replicas<T>>(std::move(options), [&](Endpoint&) { return T(kind); });
  loop->attach("net", &T::net);
  loop->keep("adam", &T::optimizer);
  return loop;
}

// The learning rates fall after each third step.
template <class T>
void train_until(Replicas<T>& loop, int64_t steps, const ShardedCase& kind) {
  while (loop.steps_taken() < steps) {
    const auto numbers =
        torch::arange(12 * 90, torch::kFloat64).add(100. * static_cast<double>(loop.steps_taken()));
    const auto X = numbers.mul(.37).sin().view({12, 90}).to(kind.dtype);
    loop.step(Pair(X, X.slice(1, 0, 3)), [&kind](T& own, const Tuple& shard, Step& step) {
      const auto& [input, target] = shard;
      own.zero_grad();
      const auto squares = (own.net->forward(input) - target).square();
      if (input.size(0) > 0) (squares.sum() / step.rows()).backward();
      step.wait();
      if (kind.clip_norm > 0) torch::nn::utils::clip_grad_norm_(own.net->parameters(), kind.clip_norm);
      own.update(step);
      if (step.number() % 3 != 2) return;
      for (auto& group : own.groups()) group.options().set_lr(group.options().get_lr() * .8);
    });
  }
}

}  // namespace lockstep::testing
