#include <lockstep/models/layers/batch_norm/run_batch_norm.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <span>
#include <type_traits>

#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>
#include <lockstep/models/layers/batch_norm/merge_statistics.h>
#include <lockstep/models/layers/cpu/batch_norm.h>
#include <lockstep/support/cuda/stream.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

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

// One for each channel of x.
torch::Tensor floats(const torch::Tensor& x) {
  return torch::empty({x.size(1)}, x.options().dtype(torch::kFloat32));
}

int64_t rows_of(const torch::Tensor& x) { return x.numel() / x.size(1); }

// For GPU kernels, as the counters; undefined on a CPU.
torch::Tensor workspace_for(const torch::Tensor& x) {
  if (!takes_gpu_kernels(x.device())) return {};
  return torch::empty({batch_norm_workspace(rows_of(x), x.size(1))}, x.options().dtype(torch::kFloat32));
}

// Zeros.
torch::Tensor counters_for(const FusedBatchNorm& layer, const torch::Tensor& x) {
  if (!takes_gpu_kernels(x.device())) return {};
  BatchNormCounters own;
  return (layer.counters ? *layer.counters : own).on(x.device(), batch_norm_counters(x.size(1)));
}

// Forward's kernels set them to zeros.
torch::Tensor backward_counters_for(const torch::Tensor& x) {
  if (!takes_gpu_kernels(x.device())) return {};
  return torch::empty({batch_norm_counters(x.size(1))}, x.options().dtype(torch::kInt32));
}

unsigned* counters_in(const torch::Tensor& tensor) {
  return reinterpret_cast<unsigned*>(data_or_null<int32_t>(tensor));
}

// type: of the result.
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

}  // namespace

bool takes_gpu_kernels(torch::Device device) { return batch_norm_kernels_take(device.is_cuda()); }

torch::ScalarType type_of_result(const torch::Tensor& x, const FusedBatchNorm& layer) {
  return layer.dtype.value_or(x.scalar_type());
}

torch::Tensor aligned_channels_last(const torch::Tensor& x) {
  const auto result = x.contiguous(torch::MemoryFormat::ChannelsLast);
  return is_aligned(result.const_data_ptr(), kVectorBytes) ? result : result.clone();
}

torch::Tensor run_batch_norm(KeptBatchNorm& kept, const FusedBatchNorm& layer, const torch::Tensor& residual,
                             const CpuKernels<float>& kernels, double& whole_rows) {
  const auto& x = kept.x;
  const auto type = type_of_result(x, layer);
  const auto y = torch::empty_like(x, x.options().dtype(type), torch::MemoryFormat::ChannelsLast);
  kept.passed = passed_for(x, type);
  kept.centre = floats(x);
  kept.invstd = floats(x);
  kept.arrived = backward_counters_for(x);
  const auto workspace = workspace_for(x), arrived = counters_for(layer, x);
  const auto merge = merge_of(layer, rows_of(x), &whole_rows);
  with_types(type, x, [&]<class T, class In>(T, In) {
    BatchNormForward<T, In> pass;
    pass.rows = rows_of(x);
    pass.c = x.size(1);
    pass.x = data_or_null<const In>(x);
    pass.residual = data_or_null<const T>(residual);
    pass.residual_bias = data_or_null<const float>(layer.residual_bias);
    pass.weight = data_or_null<const float>(kept.weight);
    pass.bias = data_or_null<const float>(layer.bias);
    pass.conv_bias = data_or_null<const float>(layer.conv_bias);
    pass.eps = layer.eps;
    pass.momentum = layer.momentum;
    pass.running_mean = data_or_null<float>(layer.running_mean);
    pass.running_var = data_or_null<float>(layer.running_var);
    pass.y = data_or_null<T>(y);
    set_passed(pass, kept.passed);
    pass.centre = data_or_null<float>(kept.centre);
    pass.invstd = data_or_null<float>(kept.invstd);
    pass.batches = data_or_null<int64_t>(layer.num_batches_tracked);
    pass.workspace = data_or_null<float>(workspace);
    pass.arrived = counters_in(arrived);
    pass.backward_arrived = counters_in(kept.arrived);
    run_forward(pass, x.device(), kernels, merge);
  });
  return y;
}

void run_batch_norm_backward(const KeptBatchNorm& kept, const BatchNormGradients& gradients,
                             const CpuKernels<float>& kernels, StatisticsExchange* exchange,
                             double whole_rows) {
  const auto& x = kept.x;
  const auto workspace = workspace_for(x);
  const auto merge = merge_of(exchange, whole_rows);
  with_types(gradients.dy.scalar_type(), x, [&]<class T, class In>(T, In) {
    BatchNormBackward<T, In> pass;
    pass.rows = rows_of(x);
    pass.c = x.size(1);
    pass.x = data_or_null<const In>(x);
    set_passed(pass, kept.passed);
    pass.weight = data_or_null<const float>(kept.weight);
    pass.centre = data_or_null<const float>(kept.centre);
    pass.invstd = data_or_null<const float>(kept.invstd);
    pass.dy = data_or_null<const T>(gradients.dy);
    pass.more_dy = data_or_null<const T>(gradients.more_dy);
    pass.dx = data_or_null<In>(gradients.dx);
    pass.dresidual = data_or_null<T>(gradients.dresidual);
    pass.dweight = data_or_null<float>(gradients.dweight);
    pass.dbias = data_or_null<float>(gradients.dbias);
    pass.dresidual_bias = data_or_null<float>(gradients.dresidual_bias);
    pass.workspace = data_or_null<float>(workspace);
    pass.arrived = counters_in(kept.arrived);
    run_backward(pass, x.device(), kernels, merge);
  });
}

}  // namespace lockstep
