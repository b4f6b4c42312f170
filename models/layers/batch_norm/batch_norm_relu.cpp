#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>

#include <ATen/Parallel.h>
#include <c10/core/DeviceGuard.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <span>

#include <lockstep/models/layers/autograd_operation.h>
#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>
#include <lockstep/models/layers/batch_norm/merge_statistics.h>
#include <lockstep/models/layers/cpu/batch_norm.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Calls body(T{}, In{}): the kernels' types of the result and of x.
template <class Body>
void with_types(torch::ScalarType result, const torch::Tensor& x, const Body& body) {
  if (result == torch::kFloat32) {
    body(float{}, float{});
  } else if (x.scalar_type() == torch::kFloat32) {
    body(Bf16{}, float{});
  } else {
    body(Bf16{}, Bf16{});
  }
}

torch::ScalarType type_of_result(const torch::Tensor& x, const FusedBatchNorm& layer) {
  return layer.dtype.value_or(x.scalar_type());
}

// Also at an address from which vectors can be loaded.
torch::Tensor in_channels_last(const torch::Tensor& x) {
  const auto result = x.contiguous(torch::MemoryFormat::ChannelsLast);
  return is_aligned(result.const_data_ptr(), kVectorBytes) ? result : result.clone();
}

torch::Tensor floats(const torch::Tensor& x, int64_t n) {
  return torch::empty({n}, x.options().dtype(torch::kFloat32));
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
  for (const auto* tensor : {&layer.weight, &layer.bias, &layer.running_mean, &layer.running_var,
                             &layer.conv_bias, &layer.residual_bias}) {
    const bool optional = tensor == &layer.conv_bias || tensor == &layer.residual_bias;
    if (optional && !tensor->defined()) continue;
    TORCH_CHECK(tensor->sizes() == torch::IntArrayRef{c} && tensor->scalar_type() == torch::kFloat32 &&
                    tensor->is_contiguous() && tensor->device() == x.device(),
                "a fused batch normalisation of ", c, " channels was given a tensor of ", tensor->sizes(),
                ", ", tensor->scalar_type());
  }
  const auto& batches = layer.num_batches_tracked;
  TORCH_CHECK(!batches.defined() || (batches.numel() == 1 && batches.scalar_type() == torch::kInt64 &&
                                     batches.device() == x.device()),
              "a fused batch normalisation cannot count batches in a tensor of ", batches.sizes(), ", ",
              batches.scalar_type());
}

// Also true on a CPU in tests that emulate the GPU kernels there.
bool takes_gpu_kernels(torch::Device device) { return batch_norm_kernels_take(device.is_cuda()); }

torch::Tensor workspace_for(const torch::Tensor& x, int64_t rows, int64_t c) {
  return takes_gpu_kernels(x.device()) ? floats(x, batch_norm_workspace(rows, c)) : torch::Tensor();
}

// Undefined on a CPU, as the next.
torch::Tensor counters_for(const FusedBatchNorm& layer, const torch::Tensor& x, int64_t c) {
  if (!takes_gpu_kernels(x.device())) return {};
  BatchNormCounters own;
  return (layer.counters ? *layer.counters : own).on(x.device(), batch_norm_counters(c));
}

torch::Tensor uninitialised_counters(const torch::Tensor& x, int64_t c) {
  if (!takes_gpu_kernels(x.device())) return {};
  return torch::empty({batch_norm_counters(c)}, x.options().dtype(torch::kInt32));
}

unsigned* counters_in(const torch::Tensor& tensor) {
  return reinterpret_cast<unsigned*>(data_or_null<int32_t>(tensor));
}

// Where ReLU passes its input, in bits, for the backward pass. type: of the result.
torch::Tensor passed_for(const torch::Tensor& x, torch::ScalarType type) {
  if (!takes_gpu_kernels(x.device()))
    return torch::empty({x.numel() / kPassedWord}, x.options().dtype(torch::kUInt16));
  const int vector = batch_norm_vector(x.size(1), static_cast<int64_t>(c10::elementSize(type)));
  return torch::empty({x.numel() / vector}, x.options().dtype(torch::kUInt8));
}

// Gives a pass the memory of passed_for().
template <class Pass>
void set_passed(Pass& pass, const torch::Tensor& passed) {
  if (passed.scalar_type() == torch::kUInt8) {
    pass.mask = data_or_null<uint8_t>(passed);
  } else {
    pass.passed = data_or_null<uint16_t>(passed);
  }
}

const CpuKernels<float>& kernels_of(const std::optional<CpuCapability>& capability) {
  return capability ? cpu_kernels_of(*capability) : cpu_kernels<float>();
}

template <class T, class In>
void run_forward(const BatchNormForward<T, In>& pass, torch::Device device, const CpuKernels<float>& kernels,
                 const MergeMoments& merge) {
  if constexpr (std::is_same_v<T, In>) {
    if (takes_gpu_kernels(device)) return batch_norm_relu_forward(pass, native_stream(device));
  }
  batch_norm_relu_forward_on_cpu(pass, kernels, at::get_num_threads(), merge);
}

template <class T, class In>
void run_backward(const BatchNormBackward<T, In>& pass, torch::Device device,
                  const CpuKernels<float>& kernels, const MergeGradients& merge) {
  if constexpr (std::is_same_v<T, In>) {
    if (takes_gpu_kernels(device)) return batch_norm_relu_backward(pass, native_stream(device));
  }
  batch_norm_relu_backward_on_cpu(pass, kernels, at::get_num_threads(), merge);
}

// (n), a view of numbers in host memory
torch::Tensor view_of(std::span<double> numbers) {
  return torch::from_blob(numbers.data(), {static_cast<int64_t>(numbers.size())}, torch::kFloat64);
}

// Also moves the running statistics. count: values per channel in this replica's rows; *all becomes that of
// the whole batch.
MergeMoments merge_of(const FusedBatchNorm& layer, int64_t count, double* all) {
  if (!layer.exchange) return {};
  return [&layer, count, all](std::span<double> means, std::span<double> variances) {
    const auto mean = view_of(means), variance = view_of(variances);
    const auto batch = merge_statistics(count, mean, variance * count, *layer.exchange);
    follow_statistics(layer.running_mean, layer.running_var, layer.momentum, batch);
    *all = batch.count.item<double>();
    mean.copy_(batch.mean);
    variance.copy_(batch.squares / batch.count);
  };
}

// count: values per channel in the whole batch
MergeGradients merge_of(StatisticsExchange* exchange, double count) {
  if (!exchange) return {};
  return [exchange, count](std::span<double> dbias, std::span<double> dweight) {
    const auto of_bias = view_of(dbias), of_weight = view_of(dweight);
    const auto both = sum_over_replicas(torch::cat({of_weight, of_bias}), *exchange).chunk(2);
    of_weight.copy_(both[0]);
    of_bias.copy_(both[1]);
    return count;
  };
}

class BatchNormRelu : public torch::autograd::Function<BatchNormRelu> {
 public:
  // conv_bias is an argument so that backward() reaches its node; it gets no gradient, since the true one is
  // 0. What may be undefined comes last: needs_input_grad() counts only the tensors that are defined.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& x_in,
                               const torch::Tensor& weight, const torch::Tensor& bias,
                               const std::optional<torch::Tensor>& residual_in,
                               const std::optional<torch::Tensor>& residual_bias,
                               const std::optional<torch::Tensor>& conv_bias, const FusedBatchNorm& layer) {
    const c10::DeviceGuard guard(x_in.device());
    const auto x = in_channels_last(x_in);
    const auto residual = residual_in ? in_channels_last(*residual_in) : torch::Tensor();
    const int64_t c = x.size(1);
    const int64_t rows = x.numel() / c;
    const auto& kernels = kernels_of(layer.capability);
    const auto type = type_of_result(x, layer);
    const auto y = torch::empty_like(x, x.options().dtype(type), torch::MemoryFormat::ChannelsLast);
    const auto centre = floats(x, c);
    const auto invstd = floats(x, c);
    const auto passed = passed_for(x, type);
    const auto workspace = workspace_for(x, rows, c);
    const auto arrived = counters_for(layer, x, c);
    const auto backward_arrived = uninitialised_counters(x, c);
    double whole_rows = 0;
    const auto merge = merge_of(layer, rows, &whole_rows);
    with_types(type, x, [&]<class T, class In>(T, In) {
      BatchNormForward<T, In> pass;
      pass.rows = rows;
      pass.c = c;
      pass.x = data_or_null<const In>(x);
      pass.residual = data_or_null<const T>(residual);
      pass.residual_bias = data_or_null<const float>(residual_bias.value_or(torch::Tensor()));
      pass.weight = data_or_null<const float>(weight);
      pass.bias = data_or_null<const float>(bias);
      pass.conv_bias = data_or_null<const float>(conv_bias.value_or(torch::Tensor()));
      pass.eps = layer.eps;
      pass.momentum = layer.momentum;
      pass.running_mean = data_or_null<float>(layer.running_mean);
      pass.running_var = data_or_null<float>(layer.running_var);
      pass.y = data_or_null<T>(y);
      set_passed(pass, passed);
      pass.centre = data_or_null<float>(centre);
      pass.invstd = data_or_null<float>(invstd);
      pass.batches = data_or_null<int64_t>(layer.num_batches_tracked);
      pass.workspace = data_or_null<float>(workspace);
      pass.arrived = counters_in(arrived);
      pass.backward_arrived = counters_in(backward_arrived);
      run_forward(pass, x.device(), kernels, merge);
    });
    context->saved_data["residual"] = residual.defined();
    context->saved_data["residual_bias"] = residual_bias.has_value();
    context->saved_data["whole_rows"] = whole_rows;
    context->saved_data["exchange"] = reinterpret_cast<int64_t>(layer.exchange);
    save_kernels(context, kernels);
    context->save_for_backward({x, passed, weight, centre, invstd, backward_arrived});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_double_backward("batch normalisation with ReLU");
    const auto saved = context->get_saved_variables();
    const auto& x = saved[0];
    const auto& kernels = saved_kernels<CpuKernels<float>>(context);
    const c10::DeviceGuard guard(x.device());
    const auto dy = in_channels_last(gradients[0]);
    const int64_t c = x.size(1);
    const int64_t rows = x.numel() / c;
    const auto dx = torch::empty_like(x, torch::MemoryFormat::ChannelsLast);
    torch::Tensor dresidual;
    if (context->saved_data["residual"].toBool() && context->needs_input_grad(3))
      dresidual = torch::empty_like(dy, torch::MemoryFormat::ChannelsLast);
    const auto dweight = floats(x, c);
    const auto dbias = floats(x, c);
    torch::Tensor dresidual_bias;
    if (context->saved_data["residual_bias"].toBool()) dresidual_bias = floats(x, c);
    const auto workspace = workspace_for(x, rows, c);
    // A first layer, whose input needs no gradient, exchanges nothing.
    auto* const exchange = reinterpret_cast<StatisticsExchange*>(context->saved_data["exchange"].toInt());
    const auto merge = merge_of(context->needs_input_grad(0) ? exchange : nullptr,
                                context->saved_data["whole_rows"].toDouble());
    with_types(dy.scalar_type(), x, [&]<class T, class In>(T, In) {
      BatchNormBackward<T, In> pass;
      pass.rows = rows;
      pass.c = c;
      pass.x = data_or_null<const In>(x);
      set_passed(pass, saved[1]);
      pass.weight = data_or_null<const float>(saved[2]);
      pass.centre = data_or_null<const float>(saved[3]);
      pass.invstd = data_or_null<const float>(saved[4]);
      pass.dy = data_or_null<const T>(dy);
      pass.dx = data_or_null<In>(dx);
      pass.dresidual = data_or_null<T>(dresidual);
      pass.dweight = data_or_null<float>(dweight);
      pass.dbias = data_or_null<float>(dbias);
      pass.dresidual_bias = data_or_null<float>(dresidual_bias);
      pass.workspace = data_or_null<float>(workspace);
      pass.arrived = counters_in(saved[5]);
      run_backward(pass, x.device(), kernels, merge);
    });
    return {dx,
            dweight,
            dbias,
            dresidual,
            dresidual_bias,
            /*conv_bias=*/torch::Tensor(),
            /*layer=*/torch::Tensor()};
  }
};

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
  check(x, layer, residual);
  TORCH_CHECK(!layer.exchange || !takes_gpu_kernels(x.device()),
              "the fused batch normalisation of a GPU takes the statistics of one replica");
  // GPU kernels take x and the result in one type.
  const auto taken = takes_gpu_kernels(x.device()) ? x.to(type_of_result(x, layer)) : x;
  const auto given = [](const torch::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  return BatchNormRelu::apply(taken, layer.weight, layer.bias, given(residual), given(layer.residual_bias),
                              given(layer.conv_bias), layer);
}

}  // namespace lockstep
