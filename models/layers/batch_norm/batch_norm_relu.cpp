#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>

#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <lockstep/models/layers/autograd_operation.h>
#include <lockstep/models/layers/batch_norm/run_batch_norm.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_channels(const torch::Tensor& x, const FusedBatchNorm& layer) {
  const int64_t c = x.size(1);
  for (const auto* tensor : {&layer.weight, &layer.bias, &layer.running_mean, &layer.running_var,
                             &layer.conv_bias, &layer.residual_bias}) {
    const bool optional = tensor == &layer.conv_bias || tensor == &layer.residual_bias;
    if (optional && !tensor->defined()) continue;
    TORCH_CHECK(tensor->sizes() == torch::IntArrayRef{c} && tensor->scalar_type() == torch::kFloat32 &&
                    tensor->is_contiguous() && tensor->device() == x.device(),
                "a fused batch normalisation of ", c, " channels was given a tensor of ", tensor->sizes(),
                ", ", tensor->scalar_type());
  }
}

void check(const torch::Tensor& x, const FusedBatchNorm& layer, const torch::Tensor& residual) {
  const auto type = type_of_result(x, layer);
  TORCH_CHECK(x.dim() == 4 && fused_batch_norm_available(x.device(), type, x.size(1)) &&
                  (x.scalar_type() == type || x.scalar_type() == torch::kFloat32),
              "no fused batch normalisation of ", x.sizes(), ", ", x.scalar_type(), " to ", type, " on ",
              x.device());
  const int64_t c = x.size(1);
  TORCH_CHECK(c > 0 && x.numel() / c > (layer.exchange ? 0 : 1),
              "Expected more than 1 value per channel when training, got input size ", x.sizes());
  TORCH_CHECK(!residual.defined() || (residual.sizes() == x.sizes() && residual.scalar_type() == type &&
                                      residual.device() == x.device()),
              "the residual does not match the result: ", residual.sizes(), ", ", residual.scalar_type(),
              ", expected ", x.sizes(), ", ", type);
  check_channels(x, layer);
  const auto& batches = layer.num_batches_tracked;
  TORCH_CHECK(!batches.defined() || (batches.numel() == 1 && batches.scalar_type() == torch::kInt64 &&
                                     batches.device() == x.device()),
              "a fused batch normalisation cannot count batches in a tensor of ", batches.sizes(), ", ",
              batches.scalar_type());
  TORCH_CHECK(!layer.exchange || !takes_gpu_kernels(x.device()),
              "the fused batch normalisation of a GPU takes the statistics of one replica");
}

const CpuKernels<float>& kernels_of(const std::optional<CpuCapability>& capability) {
  return capability ? cpu_kernels_of(*capability) : cpu_kernels<float>();
}

class BatchNormRelu : public torch::autograd::Function<BatchNormRelu> {
 public:
  // conv_bias is an argument so that backward() reaches its node; it gets no gradient, since the true one is
  // 0. What may be undefined comes last: needs_input_grad() counts only the tensors that are defined. Returns
  // `uses` results, 1 or 2, of the same memory.
  static variable_list forward(AutogradContext* context, const torch::Tensor& x, const torch::Tensor& weight,
                               const torch::Tensor&, const std::optional<torch::Tensor>& residual_in,
                               const std::optional<torch::Tensor>& residual_bias,
                               const std::optional<torch::Tensor>&, const FusedBatchNorm& layer, int uses) {
    const c10::DeviceGuard guard(x.device());
    const auto residual = residual_in ? aligned_channels_last(*residual_in) : torch::Tensor();
    const auto& kernels = kernels_of(layer.capability);
    KeptBatchNorm kept{.x = aligned_channels_last(x), .weight = weight};
    double whole_rows = 0;
    const auto y = run_batch_norm(kept, layer, residual, kernels, whole_rows);
    context->saved_data["residual"] = residual.defined();
    context->saved_data["residual_bias"] = residual_bias.has_value();
    context->saved_data["whole_rows"] = whole_rows;
    context->saved_data["exchange"] = reinterpret_cast<int64_t>(layer.exchange);
    save_kernels(context, kernels);
    context->save_for_backward({kept.x, kept.passed, kept.weight, kept.centre, kept.invstd, kept.arrived});
    context->set_materialize_grads(false);  // a result that is not used has no gradient
    return uses == 1 ? variable_list{y} : variable_list{y, y.detach()};
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_double_backward("batch normalisation with ReLU");
    constexpr size_t kArguments = 8;  // of forward(); conv_bias and what is no tensor have no gradients
    variable_list given;
    for (const auto& gradient : gradients) {
      if (gradient.defined()) given.push_back(aligned_channels_last(gradient));
    }
    if (given.empty()) return variable_list(kArguments);
    const auto saved = context->get_saved_variables();
    const KeptBatchNorm kept{.x = saved[0],
                             .passed = saved[1],
                             .weight = saved[2],
                             .centre = saved[3],
                             .invstd = saved[4],
                             .arrived = saved[5]};
    const c10::DeviceGuard guard(kept.x.device());
    BatchNormGradients all{.dy = given.front(),
                           .more_dy = given.size() > 1 ? given.back() : torch::Tensor(),
                           .dx = torch::empty_like(kept.x, torch::MemoryFormat::ChannelsLast),
                           .dweight = torch::empty_like(kept.centre),
                           .dbias = torch::empty_like(kept.centre)};
    if (context->saved_data["residual"].toBool() && context->needs_input_grad(3))
      all.dresidual = torch::empty_like(all.dy, torch::MemoryFormat::ChannelsLast);
    if (context->saved_data["residual_bias"].toBool()) all.dresidual_bias = torch::empty_like(kept.centre);
    // A first layer, whose input needs no gradient, exchanges nothing.
    auto* const exchange = reinterpret_cast<StatisticsExchange*>(context->saved_data["exchange"].toInt());
    run_batch_norm_backward(kept, all, saved_kernels<CpuKernels<float>>(context),
                            context->needs_input_grad(0) ? exchange : nullptr,
                            context->saved_data["whole_rows"].toDouble());
    variable_list results{all.dx, all.dweight, all.dbias, all.dresidual, all.dresidual_bias};
    results.resize(kArguments);
    return results;
  }
};

variable_list batch_norm_relu(const torch::Tensor& x, const FusedBatchNorm& layer,
                              const torch::Tensor& residual, int uses) {
  check(x, layer, residual);
  // GPU kernels take x and the result in one type.
  const auto taken = takes_gpu_kernels(x.device()) ? x.to(type_of_result(x, layer)) : x;
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return BatchNormRelu::apply(taken, layer.weight, layer.bias, given(residual), given(layer.residual_bias),
                              given(layer.conv_bias), layer, uses);
}

}  // namespace

torch::Tensor BatchNormCounters::on(torch::Device device, int64_t count) {
  constexpr int64_t kLeast = 64;  // for 2048 channels
  if (!zeros_.defined() || zeros_.device() != device || zeros_.numel() < count) {
    zeros_ = torch::zeros({std::max(count, kLeast)}, torch::dtype(torch::kInt32).device(device));
  }
  return zeros_;
}

bool fused_batch_norm_available(torch::Device device, torch::ScalarType dtype, int64_t channels) {
  if (dtype != torch::kFloat32 && dtype != torch::kBFloat16) return false;
  if (!device.is_cuda() && !device.is_cpu()) return false;
  return takes_gpu_kernels(device) || (device.is_cpu() && channels % 16 == 0);
}

bool fused_batch_norm_adds_residual_bias(torch::Device device) { return takes_gpu_kernels(device); }

torch::Tensor fused_batch_norm_relu(const torch::Tensor& x, const FusedBatchNorm& layer,
                                    const torch::Tensor& residual) {
  return batch_norm_relu(x, layer, residual, /*uses=*/1).front();
}

TwoUses fused_batch_norm_relu_for_two(const torch::Tensor& x, const FusedBatchNorm& layer,
                                      const torch::Tensor& residual) {
  const auto results = batch_norm_relu(x, layer, residual, takes_gpu_kernels(x.device()) ? 2 : 1);
  return {results.front(), results.back()};
}

}  // namespace lockstep
