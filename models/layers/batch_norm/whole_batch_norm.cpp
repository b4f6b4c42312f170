#include <lockstep/models/layers/batch_norm/whole_batch_norm.h>

#include <ATen/OpMathType.h>
#include <ATen/ops/batch_norm_update_stats.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <lockstep/models/layers/batch_norm/merge_statistics.h>

namespace lockstep {
namespace {

using OptionalTensor = std::optional<torch::Tensor>;

// The dtype of statistics, in which torch normalises x.
torch::ScalarType statistics_type(const torch::Tensor& x) { return at::toOpMathType(x.scalar_type()); }

OptionalTensor as_statistics_of(const torch::Tensor& x, const torch::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor.to(statistics_type(x))) : std::nullopt;
}

// (c) as a factor of x (n, c, ...)
torch::Tensor per_channel(const torch::Tensor& values, const torch::Tensor& x) {
  std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
  shape[1] = values.numel();
  return values.view(shape);
}

// A collective.
BatchStatistics statistics_of_all(const torch::Tensor& x, StatisticsExchange& exchange) {
  const int64_t c = x.size(1), count = x.numel() / c;
  if (count == 0) {
    const auto none = torch::zeros({c}, x.options().dtype(torch::kFloat64));
    return merge_statistics(0, none, none, exchange);
  }
  const auto [mean, variance] = at::batch_norm_update_stats(x.to(statistics_type(x)), {}, {}, /*momentum=*/0);
  return merge_statistics(count, mean.to(torch::kFloat64), variance.to(torch::kFloat64) * count, exchange);
}

// (x - mean) / sqrt(variance + eps) * weight + bias, with these statistics
torch::Tensor normalised(const torch::Tensor& x, const OptionalTensor& weight, const OptionalTensor& bias,
                         const torch::Tensor& mean, const torch::Tensor& variance, double eps) {
  if (x.numel() == 0) return torch::empty_like(x);
  return std::get<0>(
      at::native_batch_norm(x, weight, bias, mean, variance, /*training=*/false, /*momentum=*/0, eps));
}

class WholeBatchNormFunction : public torch::autograd::Function<WholeBatchNormFunction> {
 public:
  using Context = torch::autograd::AutogradContext;

  static torch::Tensor forward(Context* context, const torch::Tensor& x, const OptionalTensor& weight,
                               const OptionalTensor& bias, const torch::Tensor& count,
                               const torch::Tensor& mean, const torch::Tensor& variance, double eps,
                               StatisticsExchange* exchange) {
    context->save_for_backward({x, weight.value_or(torch::Tensor()), count, mean, variance});
    context->saved_data["eps"] = eps;
    context->saved_data["has_bias"] = bias.has_value();
    context->saved_data["exchange"] = reinterpret_cast<int64_t>(exchange);
    return normalised(x, weight, bias, mean, variance, eps);
  }

  static std::vector<torch::Tensor> backward(Context* context, std::vector<torch::Tensor> gradients) {
    TORCH_CHECK(
        !torch::GradMode::is_enabled(),
        "a batch normalisation of the whole batch can be differentiated once, but create_graph asks for "
        "differentiable gradients");
    const auto saved = context->get_saved_variables();
    const auto &x = saved[0], &weight = saved[1], &mean = saved[3], &variance = saved[4];
    const auto& dy = gradients.front();
    const double eps = context->saved_data["eps"].toDouble();
    const auto own = sums_of(dy, x, mean, variance, eps);  // of dy x_hat, and of dy
    torch::Tensor dx;
    if (context->needs_input_grad(0)) {
      auto& exchange = *reinterpret_cast<StatisticsExchange*>(context->saved_data["exchange"].toInt());
      const auto all = sum_over_replicas(torch::cat({own.first, own.second}).to(torch::kFloat64), exchange);
      dx = input_gradient(dy, x, weight, mean, variance, eps, all / saved[2]);
    }
    const bool has_bias = context->saved_data["has_bias"].toBool();
    return {dx,
            weight.defined() ? own.first : torch::Tensor(),
            has_bias ? own.second : torch::Tensor(),
            {},
            {},
            {},
            {},
            {}};
  }

 private:
  // Over this replica's rows, each (c).
  static std::pair<torch::Tensor, torch::Tensor> sums_of(const torch::Tensor& dy, const torch::Tensor& x,
                                                         const torch::Tensor& mean,
                                                         const torch::Tensor& variance, double eps) {
    if (x.numel() == 0) return {torch::zeros_like(mean), torch::zeros_like(mean)};
    auto [dx, dweight, dbias] = at::native_batch_norm_backward(dy, x, {}, mean, variance, {}, {},
                                                               /*train=*/false, eps, {false, true, true});
    return {dweight, dbias};
  }

  // a (dy - mean(dy) - x_hat mean(dy x_hat)), where a = weight / sqrt(variance + eps). means: those of dy
  // x_hat and of dy over the whole batch, (2c) double
  static torch::Tensor input_gradient(const torch::Tensor& dy, const torch::Tensor& x,
                                      const torch::Tensor& weight, const torch::Tensor& mean,
                                      const torch::Tensor& variance, double eps, const torch::Tensor& means) {
    auto a = (variance.to(torch::kFloat64) + eps).rsqrt_();
    if (weight.defined()) a = a * weight;
    const auto both = means.chunk(2);
    const auto type = mean.scalar_type();
    const auto dx = normalised(x, (-a * both[0]).to(type), (-a * both[1]).to(type), mean, variance, eps);
    return dx.addcmul_(dy, per_channel(a.to(type), x));
  }
};

}  // namespace

torch::Tensor whole_batch_norm(const torch::Tensor& x, const WholeBatchNorm& layer,
                               StatisticsExchange& exchange) {
  torch::Tensor count, mean, variance;
  {
    const torch::NoGradGuard no_grad;
    const auto all = statistics_of_all(x.detach(), exchange);
    follow_statistics(layer.running_mean, layer.running_var, layer.momentum, all);
    count = all.count;
    mean = all.mean.to(statistics_type(x));
    variance = (all.squares / all.count).to(statistics_type(x));
  }
  return WholeBatchNormFunction::apply(x, as_statistics_of(x, layer.weight), as_statistics_of(x, layer.bias),
                                       count, mean, variance, layer.eps, &exchange);
}

}  // namespace lockstep
