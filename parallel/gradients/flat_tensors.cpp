#include <lockstep/parallel/gradients/flat_tensors.h>

#include <c10/core/DeviceGuard.h>

#include <lockstep/parallel/gradients/flat_fill.h>
#include <lockstep/support/cuda/stream.h>

namespace lockstep {
namespace {

// Real numbers that an element takes.
int64_t reals_in(torch::ScalarType type) { return c10::isComplexType(type) ? 2 : 1; }

// As a sum into a buffer of zeros, where -0 becomes 0.
void fill_view(const torch::Tensor& view, const torch::Tensor& tensor) {
  view.zero_();
  if (tensor.defined()) view.add_(tensor);
}

// Returns true if the kernel can read the tensor's memory, whose elements lie as those of the view.
bool lies_as(const torch::Tensor& view, const torch::Tensor& tensor) {
  if (tensor.layout() != torch::kStrided) return false;
  if (tensor.is_conj() || tensor.is_neg() || tensor._is_zerotensor()) return false;
  if (!view.is_non_overlapping_and_dense() || tensor.sizes() != view.sizes()) return false;
  for (int64_t d = 0; d < view.dim(); ++d) {
    if (view.size(d) != 1 && view.stride(d) != tensor.stride(d)) return false;
  }
  return true;
}

// T: the views' dtype.
template <class T>
void fill_by_kernel(std::span<const torch::Tensor> views, std::span<const torch::Tensor> tensors) {
  std::vector<FlatPiece<T>> pieces;
  for (size_t i = 0; i < views.size(); ++i) {
    const auto& view = views[i];
    const auto& tensor = tensors[i];
    const bool bf16 = tensor.defined() && tensor.scalar_type() == torch::kBFloat16;
    const bool known = !tensor.defined() || bf16 || tensor.scalar_type() == view.scalar_type();
    if (view.is_complex() || !known || (tensor.defined() && !lies_as(view, tensor))) {
      fill_view(view, tensor);
      continue;
    }
    pieces.push_back({.from = tensor.defined() ? tensor.const_data_ptr() : nullptr,
                      .to = view.mutable_data_ptr<T>(),
                      .size = view.numel(),
                      .from_bf16 = bf16});
  }
  fill_flat(pieces, native_stream(views.front().device()));
}

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

void fill_views(std::span<const torch::Tensor> views, std::span<const torch::Tensor> tensors) {
  if (views.empty()) return;
  const torch::NoGradGuard no_grad;
  const c10::DeviceGuard guard(views.front().device());
  const auto type = c10::toRealValueType(views.front().scalar_type());
  if (views.front().is_cpu() || (type != torch::kFloat32 && type != torch::kFloat64)) {
    for (size_t i = 0; i < views.size(); ++i) fill_view(views[i], tensors[i]);
  } else if (type == torch::kFloat32) {
    fill_by_kernel<float>(views, tensors);
  } else {
    fill_by_kernel<double>(views, tensors);
  }
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
