#include <lockstep/parallel/gradients/flat_tensors.h>

#include <lockstep/parallel/gradients/buckets.h>

namespace lockstep {
std::vector<int64_t> numels_of(const Params& tensors) {
  std::vector<int64_t> numels;
  for (const auto& tensor : tensors) numels.push_back(tensor.numel());
  return numels;
}

FlatTensors flat_zeros_like(const Params& tensors) {
  FlatTensors result;
  const auto& first = tensors.front();
  const auto layout = flat_layout(numels_of(tensors));
  result.flat = torch::zeros({layout.size}, first.options().requires_grad(false));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto dense = tensor.is_non_overlapping_and_dense();
    const auto strides = dense ? tensor.strides().vec() : tensor.contiguous().strides().vec();
    // Made from the storage, so that autograd does not know it as a view: zero_grad(false) cannot detach
    // views.
    result.views.push_back(torch::empty({0}, result.flat.options())
                               .set_(result.flat.storage(), layout.offset[i], tensor.sizes(), strides));
  }
  return result;
}

std::vector<torch::Tensor> gaps_of(const torch::Tensor& flat, std::span<const int64_t> numels) {
  const auto layout = flat_layout(numels);
  std::vector<torch::Tensor> gaps;
  for (size_t i = 0; i < numels.size(); ++i) {
    const auto begin = layout.offset[i] + numels[i];
    const auto end = i > 0 ? layout.offset[i - 1] : layout.size;  // the tensor registered before lies behind
    if (begin < end) gaps.push_back(flat.narrow(0, begin, end - begin));
  }
  return gaps;
}

FlatTensors flatten_parameters(const Params& params) {
  const torch::NoGradGuard no_grad;
  auto result = flat_zeros_like(params);
  for (size_t i = 0; i < params.size(); ++i) {
    result.views[i].copy_(params[i]);
    torch::Tensor param = params[i];  // the same object
    param.set_data(result.views[i]);
  }
  return result;
}

}  // namespace lockstep
