#include <lockstep/parallel/gradients/tensor_lines.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <lockstep/parallel/collectives/agree.h>
#include <lockstep/support/module_tensors.h>

namespace lockstep {

std::vector<std::string> tensor_lines(const torch::nn::Module& module) {
  require_strided(module);
  std::vector<std::string> lines;
  const auto add = [&](const std::string& name, const torch::Tensor& tensor, const char* remark) {
    const auto strides =
        tensor.is_contiguous() ? "" : fmt::format(", strides [{}]", fmt::join(tensor.strides(), ", "));
    lines.push_back(fmt::format("{} [{}] {}{}{}", name, fmt::join(tensor.sizes(), ", "),
                                torch::toString(tensor.scalar_type()), strides, remark));
  };
  for (const auto& [name, param] : distinct_parameters(module)) {
    add(name, param, param.requires_grad() ? "" : ", frozen");
  }
  for (const auto& [name, buffer] : distinct_buffers(module)) add(name, buffer, "");
  return lines;
}

void agree_on_module(const torch::nn::Module& module, Endpoint& endpoint) {
  agree(endpoint, "models", tensor_lines(module),
        "build the same model on all ranks, with the same parameters frozen");
}

}  // namespace lockstep
