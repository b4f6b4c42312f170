#include <lockstep/parallel/gradients/flat_tensors.h>

namespace lockstep {
namespace {

// Real numbers that an element takes.
int64_t reals_in(torch::ScalarType type) { return c10::isComplexType(type) ? 2 : 1; }

}  // namespace

std::vector<int64_t> numels_of(const Params& tensors) {
  std::vector<int64_t> numels;
  for (const auto& tensor : tensors) numels.push_back(tensor.numel() * reals_in(tensor.scalar_type()));
  return numels;
}

FlatTensors flat_zeros_like(const Params& tensors) {
  FlatTensors result;
  result.flat = torch::zeros({flat_layout(numels_of(tensors)).size}, options_of_reals(tensors.front()));
  result.views = views_of(result.flat, tensors);
  return result;
}

Params views_of(const torch::Tensor& flat, const Params& tensors) {
  const auto layout = flat_layout(numels_of(tensors));
  Params views;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& tensor = tensors[i];
    const auto dense = tensor.is_non_overlapping_and_dense();
    const auto strides = dense ? tensor.strides().vec() : tensor.contiguous().strides().vec();
    auto type = flat.scalar_type();
    if (tensor.is_complex()) type = c10::toComplexType(type);
    // Made from the storage, so that autograd does not know it as a view: zero_grad(false) cannot detach
    // views. Offsets are even, as tensors are aligned.
    views.push_back(torch::empty({0}, flat.options().dtype(type))
                        .set_(flat.storage(), layout.offset[i] / reals_in(type), tensor.sizes(), strides));
  }
  return views;
}

// A bucket has whole tensors, so that they have the layout of a buffer of their own.
Params views_of_bucket(const torch::Tensor& memory, const Params& tensors, const Bucket& bucket) {
  return views_of(memory, Params(tensors.begin() + bucket.first, tensors.begin() + bucket.last + 1));
}

torch::TensorOptions options_of_reals(const torch::Tensor& tensor) {
  return tensor.options().dtype(c10::toRealValueType(tensor.scalar_type())).requires_grad(false);
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

torch::Tensor in_memory_order(const torch::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return tensor.contiguous().flatten();
  return tensor.as_strided({tensor.numel()}, {1}, tensor.storage_offset());
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
