#include <lockstep/models/program/fused_layers.h>

#include <ATen/ops/conv2d.h>
#include <torch/nn/module.h>

#include <utility>

#include <lockstep/models/layers/batch_norm/batch_norm_relu.h>
#include <lockstep/models/layers/conv_choice.h>
#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>

namespace lockstep::program {

using Values = std::vector<c10::IValue>;

bool FusedLayers::compute(const ReadyNode& node, const Values& values, Values& stack) {
  if (node.part == LayerPart::kNone || runs_.empty()) return false;
  const auto& layers = graph_.conv_norms[static_cast<size_t>(node.layers)];
  auto& run = runs_[static_cast<size_t>(node.layers)];
  if (node.part == LayerPart::kConv) run.fused = chooses(layers, values, stack[0].toTensor());
  if (!run.fused) return false;
  torch::Tensor result;
  switch (node.part) {
    case LayerPart::kConv:
      result = convolve(layers, stack, run);
      break;
    case LayerPart::kNorm:
      if (layers.residual < 0) {
        result = norm_relu(layers, stack, {}, run);
      } else {
        result = stack[0].toTensor();
        run.norm = stack;
      }
      break;
    case LayerPart::kAddition:
      result = norm_relu(layers, std::exchange(run.norm, {}),
                         stack[static_cast<size_t>(layers.residual)].toTensor(), run);
      break;
    default:
      result = stack[0].toTensor();
  }
  stack.clear();
  stack.emplace_back(std::move(result));
  return true;
}

// Replicas without rows take part in the statistics of the whole batch by torch's kernels, in the order of
// the graph. So does a norm that would otherwise be computed behind another one.
bool FusedLayers::chooses(const ConvNormRelu& layers, const Values& values, const torch::Tensor& X) const {
  const auto& norm = with_.norms[static_cast<size_t>(layers.norm)];
  auto* exchange = norm.exchange();
  return norm.module->is_training() && X.is_cpu() && X.dim() == 4 && X.size(0) > 0 &&
         !(exchange && layers.apart) &&
         fuses_batch_norm(with_.kernels, values[static_cast<size_t>(layers.weight)].toTensor(), exchange, X);
}

torch::Tensor FusedLayers::convolve(const ConvNormRelu& layers, const Values& arguments, Run& run) const {
  const auto X = arguments[0].toTensor(), weight = arguments[1].toTensor();
  auto bias = arguments[2].isNone() ? torch::Tensor() : arguments[2].toTensor();
  if (layers.takes_bias) run.conv_bias = std::exchange(bias, torch::Tensor());
  const auto stride = arguments[3].toIntVector(), padding = arguments[4].toIntVector(),
             dilation = arguments[5].toIntVector();
  const auto groups = arguments[6].toInt();
  const auto type = computed_in(X);
  if (!bias.defined() &&
      chooses_conv3x3(with_.kernels, weight, {stride, padding, dilation, groups}, X, type)) {
    return conv3x3(X.to(type), weight, bias);
  }
  // clone(), since contiguous() returns a weight of one channel as it is, which torch takes for the other
  // format.
  return at::conv2d(X.contiguous(torch::MemoryFormat::ChannelsLast),
                    weight.clone(torch::MemoryFormat::ChannelsLast), bias, stride, padding, dilation, groups);
}

torch::Tensor FusedLayers::norm_relu(const ConvNormRelu& layers, const Values& norm,
                                     const torch::Tensor& residual, const Run& run) const {
  const auto h = norm[0].toTensor();
  const auto type = computed_in(h);
  return fused_batch_norm_relu(h,
                               {.weight = norm[1].toTensor(),
                                .bias = norm[2].toTensor(),
                                .running_mean = norm[3].toTensor(),
                                .running_var = norm[4].toTensor(),
                                .conv_bias = run.conv_bias,
                                .dtype = type,
                                .momentum = norm[6].toDouble(),
                                .eps = norm[7].toDouble(),
                                .exchange = with_.norms[static_cast<size_t>(layers.norm)].exchange()},
                               residual.defined() ? residual.to(type) : residual);
}

}  // namespace lockstep::program
