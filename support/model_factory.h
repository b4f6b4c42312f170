// Makes a model's factory from a LibTorch module and a loss:
//
//   const auto factory = model_factory<MyNetImpl>(/*hidden=*/128)
//                            .loss([](MyNetImpl& net, const Batch& in) {
//                              const auto error = net.forward(in["features"]) - in["price"];
//                              return Outcome{error.square().sum(), {error.abs().sum()}};
//                            })
//                            .metric("mae");
//
// A loss is a sum over the rows: Trainer divides it by the rows of the whole batch, so that any split of a
// batch gives the same step. check_split() (parallel/check_split.h) tells whether yours does.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/losses.h>
#include <lockstep/support/types.h>

namespace lockstep {

// Converts to a ModelFactory, and can be called as one. Net derives from torch::nn::Module.
template <class Net>
class NetFactory {
 public:
  explicit NetFactory(std::function<std::shared_ptr<Net>()> build) : build_(std::move(build)) {
    if constexpr (requires(Net & net, const Batch& in) {
                    { net.forward(in.input()) } -> std::convertible_to<torch::Tensor>;
                  }) {
      output([](Net& net, const Batch& in) -> torch::Tensor { return net.forward(in.input()); });
    }
    loss(classification());
  }

  // A function that gives Model::output. Without one it is net.forward() of the batch's one input, where
  // there is such a forward().
  NetFactory& output(std::function<torch::Tensor(Net&, const Batch&)> of_rows) {
    output_ = std::move(of_rows);
    return *this;
  }

  // The loss of the output, and of the batch's one target.
  NetFactory& loss(OutputLoss own) {
    loss_ = {};
    output_loss_ = std::move(own.loss_sum);
    loss_metrics_ = std::move(own.metrics);
    loss_weight_ = {};
    if (own.weight) loss_weight_ = [of = std::move(own.weight)](const Batch& in) { return of(in.target()); };
    return *this;
  }

  // A function of (Net&, const Batch&) that returns an Outcome, or the loss alone. metric() declares the
  // metrics.
  template <class Sum>
  requires std::invocable<const Sum&, Net&, const Batch&> NetFactory& loss(Sum sum) {
    loss_ = [of = std::move(sum)](Net& net, const Batch& in) -> Outcome { return {of(net, in)}; };
    output_loss_ = {};
    loss_metrics_.clear();
    loss_weight_ = {};
    return *this;
  }

  // Declares the next metric of the outcomes: a mean over the rows, or what `kind` says. Its name is this
  // one.
  NetFactory& metric(std::string name, MetricKind kind = {}) {
    kind.name = std::move(name);
    metrics_.push_back(std::move(kind));
    return *this;
  }

  // As Model::weight.
  NetFactory& weight(std::function<torch::Tensor(const Batch&)> of_rows) {
    weight_ = std::move(of_rows);
    return *this;
  }

  Model operator()() const {
    const auto net = build_();
    Model model{
        .module = net, .loss_sum = {}, .metrics = loss_metrics_, .weight = weight_ ? weight_ : loss_weight_};
    model.metrics.insert(model.metrics.end(), metrics_.begin(), metrics_.end());
    if (output_) model.output = [net, of = output_](const Batch& in) { return of(*net, in); };
    if (loss_) {
      model.loss_sum = [net, of = loss_](const Batch& in) { return of(*net, in); };
    } else if (output_loss_ && output_) {
      model.loss_sum = [output = model.output, of = output_loss_](const Batch& in) {
        return of(output(in), in.target());
      };
    }
    if constexpr (requires(Params weights) { net->use_bf16_weights(weights); }) {
      model.use_bf16_weights = [net](const Params& weights) { net->use_bf16_weights(weights); };
    }
    return model;
  }

 private:
  std::function<std::shared_ptr<Net>()> build_;
  std::function<torch::Tensor(Net&, const Batch&)> output_;
  std::function<Outcome(Net&, const Batch&)> loss_;  // these two: one at most is there
  std::function<Outcome(const torch::Tensor& output, const torch::Tensor& target)> output_loss_;
  std::vector<MetricKind> loss_metrics_;  // those of output_loss_
  std::function<torch::Tensor(const Batch&)> loss_weight_;
  std::vector<MetricKind> metrics_;  // declared by metric()
  std::function<torch::Tensor(const Batch&)> weight_;
};

// A factory that constructs a Net from copies of `args` in each call. Without a loss it is classification()
// of the output; a Net without a forward() of one tensor needs an output() for it, or a loss of its own. If
// Net has `use_bf16_weights(Params)`, the model has it, too.
template <class Net, class... Args>
NetFactory<Net> model_factory(Args... args) {
  return NetFactory<Net>([args...] { return std::make_shared<Net>(args...); });
}

}  // namespace lockstep
