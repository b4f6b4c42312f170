#include <lockstep/models/layers/bf16_weights.h>

#include <ATen/autocast_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <lockstep/support/error.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Bf16WeightOf : public torch::autograd::Function<Bf16WeightOf> {
 public:
  static torch::Tensor forward(AutogradContext*, const torch::Tensor& /*param*/, const torch::Tensor& bf16) {
    return bf16.detach();  // a new tensor on the same memory, which can have a node of its own
  }

  static variable_list backward(AutogradContext*, const variable_list& gradients) {
    return {gradients[0], torch::Tensor()};  // autograd converts it for a parameter that takes float alone
  }
};

bool computes_in_bf16(const torch::Tensor& X) {
  const auto device = X.device().type();
  return at::autocast::is_autocast_enabled(device) &&
         at::autocast::get_autocast_dtype(device) == torch::kBFloat16;
}

}  // namespace

void Bf16Weights::use(const std::vector<torch::Tensor>& params,
                      const std::vector<torch::Tensor>& bf16_weights) {
  weights_.clear();
  if (bf16_weights.empty()) return;
  if (bf16_weights.size() != params.size()) {
    throw UsageError(
        fmt::format("{} bf16 weights were given for {} parameters", bf16_weights.size(), params.size()));
  }
  for (size_t i = 0; i < params.size(); ++i) {
    const auto& param = params[i];
    const auto& bf16 = bf16_weights[i];
    if (param.scalar_type() != torch::kFloat32 || bf16.scalar_type() != torch::kBFloat16 ||
        bf16.sizes() != param.sizes() || bf16.strides() != param.strides() ||
        bf16.device() != param.device()) {
      weights_.clear();
      throw UsageError(
          fmt::format("the bf16 weight of parameter {} does not match it: a float parameter needs a bfloat16 "
                      "weight of the "
                      "same sizes, strides and device",
                      i));
    }
    weights_.emplace(param.unsafeGetTensorImpl(), bf16);
  }
}

torch::Tensor Bf16Weights::of(const torch::Tensor& param, const torch::Tensor& X) const {
  const auto bf16 = weights_.find(param.unsafeGetTensorImpl());
  if (bf16 == weights_.end() || !computes_in_bf16(X)) return param;
  return Bf16WeightOf::apply(param, bf16->second);
}

}  // namespace lockstep
