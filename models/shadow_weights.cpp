#include <lockstep/models/shadow_weights.h>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class ShadowOf : public torch::autograd::Function<ShadowOf> {
 public:
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& /*param*/,
                               const torch::Tensor& shadow) {
    return shadow.detach();  // a handle of its own, for the graph to hang on
  }

  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0].to(torch::kFloat32), torch::Tensor()};
  }
};

bool computes_in_bf16(const torch::Tensor& X) {
  const auto device = X.device().type();
  return at::autocast::is_autocast_enabled(device) &&
         at::autocast::get_autocast_dtype(device) == torch::kBFloat16;
}

}  // namespace

void ShadowWeights::use(const std::vector<torch::Tensor>& params, const std::vector<torch::Tensor>& shadows) {
  shadows_.clear();
  if (shadows.empty()) return;
  if (shadows.size() != params.size()) {
    throw UsageError(
        fmt::format("{} bfloat16 copies were given for {} parameters", shadows.size(), params.size()));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& param = params[i];
    const auto& shadow = shadows[i];
    if (param.scalar_type() != torch::kFloat32 || shadow.scalar_type() != torch::kBFloat16 ||
        shadow.sizes() != param.sizes() || shadow.strides() != param.strides() ||
        shadow.device() != param.device()) {
      shadows_.clear();
      throw UsageError(fmt::format(
          "the copy of parameter {} is not like it: a float parameter needs a bfloat16 copy of the same "
          "sizes, strides and device",
          i));
    }
    shadows_.emplace(param.unsafeGetTensorImpl(), shadow);
  }
}

torch::Tensor ShadowWeights::of(const torch::Tensor& param, const torch::Tensor& X) const {
  const auto shadow = shadows_.find(param.unsafeGetTensorImpl());
  if (shadow == shadows_.end() || !computes_in_bf16(X)) return param;
  return ShadowOf::apply(param, shadow->second);
}

}  // namespace lockstep
