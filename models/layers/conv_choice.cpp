#include <lockstep/models/layers/conv_choice.h>

#include <ATen/autocast_mode.h>

#include <algorithm>

#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>

namespace lockstep {
namespace {

// The only convolutions that conv3x3() computes.
bool has_stride_1_and_border_1(const ConvSteps& steps) {
  const auto all = [](torch::IntArrayRef values, int64_t value) {
    return std::ranges::all_of(values, [&](int64_t own) { return own == value; });
  };
  return all(steps.stride, 1) && all(steps.padding, 1) && all(steps.dilation, 1) && steps.groups == 1;
}

}  // namespace

torch::ScalarType computed_in(const torch::Tensor& X) {
  const auto device = X.device().type();
  const bool converted = at::autocast::is_autocast_enabled(device) && X.scalar_type() != torch::kFloat64;
  return converted ? at::autocast::get_autocast_dtype(device) : X.scalar_type();
}

bool fuses_batch_norm(Kernels kernels, const torch::Tensor& weight, const StatisticsExchange* exchange,
                      const torch::Tensor& X) {
  return kernels != Kernels::kTorch && (!exchange || (X.is_cpu() && X.size(0) > 0)) &&
         weight.scalar_type() == torch::kFloat32 &&
         fused_batch_norm_available(X.device(), computed_in(X), weight.size(0));
}

bool chooses_conv3x3(Kernels kernels, const torch::Tensor& weight, const ConvSteps& steps,
                     const torch::Tensor& X, torch::ScalarType type) {
  return kernels == Kernels::kAuto && has_stride_1_and_border_1(steps) && conv3x3_takes(X, type, weight);
}

}  // namespace lockstep
