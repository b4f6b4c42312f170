#include <lockstep/models/layers/cpu/lenet/features.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include <lockstep/models/layers/autograd_operation.h>
#include <lockstep/models/layers/cpu/check_params.h>
#include <lockstep/support/cpu/parallel_parts.h>
#include <lockstep/support/tensor_data.h>

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

int64_t groups_of(int64_t rows, int64_t lanes) { return (rows + lanes - 1) / lanes; }
int64_t threads_for_groups(int64_t groups) { return std::clamp<int64_t>(groups, 1, at::get_num_threads()); }

// The tensors that forward keeps for this many images: images, pooled1, signs1, signs2.
variable_list kept_tensors(const torch::TensorOptions& options, int64_t images) {
  return {torch::empty({images * LeNetSizes::kImage}, options),
          torch::empty({images * LeNetSizes::kPooled1}, options),
          torch::empty({images * LeNetSizes::kPooled1}, torch::kUInt8),
          torch::empty({images * LeNetSizes::kFeatures}, torch::kUInt8)};
}

template <class T>
LeNetKept<T> kept_in(const torch::Tensor* tensors) {
  return {.images = data_or_null<T>(tensors[0]),
          .pooled1 = data_or_null<T>(tensors[1]),
          .signs1 = data_or_null<uint8_t>(tensors[2]),
          .signs2 = data_or_null<uint8_t>(tensors[3])};
}

// The same from image `image` on.
template <class T>
LeNetKept<T> kept_from(const LeNetKept<T>& all, int64_t image) {
  return {.images = all.images + image * LeNetSizes::kImage,
          .pooled1 = all.pooled1 + image * LeNetSizes::kPooled1,
          .signs1 = all.signs1 + image * LeNetSizes::kPooled1,
          .signs2 = all.signs2 + image * LeNetSizes::kFeatures};
}

// params: W1, b1, W2, b2, and W2 transformed.
template <class T>
LeNetFilters<T> filters_of(const variable_list& params) {
  const auto at = [&](size_t i) { return data_or_null<const T>(params[i]); };
  return {at(0), at(1), at(2), at(3), at(4)};
}

// Returns sums (threads, layers.sums). Each thread sums over its own groups, which do not depend on the
// timing of threads.
template <class T>
torch::Tensor filter_sums(const LeNetLayers<T>& layers, const torch::Tensor& dfeatures,
                          const LeNetFilters<T>& filters, const LeNetKept<T>& kept, LeNetWanted wanted) {
  const int64_t rows = dfeatures.size(0), lanes = layers.lanes;
  const int64_t groups = groups_of(rows, lanes), threads = threads_for_groups(groups);
  const auto sums = torch::zeros({threads, layers.sums}, dfeatures.options());
  const auto scratch = torch::empty({threads, layers.scratch}, dfeatures.options());
  const auto* const dfeatures_at = data_or_null<const T>(dfeatures);
  T *const sums_at = data_or_null<T>(sums), *const scratch_at = data_or_null<T>(scratch);
  parallel_ranges(groups, threads, [&](int64_t group, int64_t end, int64_t thread) {
    for (int64_t next = 0; group < end; group = next) {
      next = std::min<int64_t>(group + layers.most_groups, end);
      const int64_t first = group * lanes;
      layers.backward(dfeatures_at + first * LeNetSizes::kFeatures, std::min(next * lanes, rows) - first,
                      filters, kept_from(kept, first), wanted, scratch_at + thread * layers.scratch,
                      sums_at + thread * layers.sums);
    }
  });
  return sums;
}

template <class T>
class LeNetFeatures : public torch::autograd::Function<LeNetFeatures<T>> {
 public:
  // Without `keeps` there is no backward pass: each thread has memory for one group and uses it again.
  static torch::Tensor forward(AutogradContext* context, const torch::Tensor& X_in, const torch::Tensor& W1,
                               const torch::Tensor& b1, const torch::Tensor& W2, const torch::Tensor& b2,
                               const LeNetLayers<T>* layers, bool keeps) {
    const auto X = X_in.contiguous();
    const auto transformed = torch::empty({layers->transformed}, X.options());
    variable_list saved{W1.contiguous(), b1.contiguous(), W2.contiguous(), b2.contiguous(), transformed};
    const auto filters = filters_of<T>(saved);
    layers->transform(filters.W2, data_or_null<T>(transformed));
    const int64_t rows = X.size(0), lanes = layers->lanes;
    const int64_t groups = groups_of(rows, lanes), threads = threads_for_groups(groups);
    const auto kept = kept_tensors(X.options(), lanes * (keeps ? groups : threads));
    const auto features = torch::empty({rows, LeNetSizes::kFeatures}, X.options());
    const auto scratch = torch::empty({threads, layers->scratch}, X.options());
    const auto kept_at = kept_in<T>(kept.data());
    const auto* const X_at = data_or_null<const T>(X);
    T *const features_at = data_or_null<T>(features), *const scratch_at = data_or_null<T>(scratch);
    parallel_ranges(groups, threads, [&](int64_t group, int64_t end, int64_t thread) {
      for (; group < end; ++group) {
        const int64_t first = group * lanes;
        layers->forward(X_at + first * LeNetSizes::kImage, static_cast<int>(std::min(lanes, rows - first)),
                        filters, kept_from(kept_at, keeps ? first : thread * lanes),
                        scratch_at + thread * layers->scratch, features_at + first * LeNetSizes::kFeatures);
      }
    });
    saved.insert(saved.end(), kept.begin(), kept.end());
    save_kernels(context, *layers);
    context->save_for_backward(std::move(saved));
    return features;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    refuse_double_backward("LeNet's convolutions");
    const auto saved = context->get_saved_variables();
    const auto& layers = saved_kernels<LeNetLayers<T>>(context);
    const LeNetWanted wanted{.layer1 = context->needs_input_grad(1) || context->needs_input_grad(2),
                             .layer2 = context->needs_input_grad(3)};
    const auto sums =
        filter_sums(layers, gradients[0].contiguous(), filters_of<T>(saved), kept_in<T>(&saved[5]), wanted);
    auto total = sums[0];
    for (int64_t thread = 1; thread < sums.size(0); ++thread) total += sums[thread];
    variable_list results(7);  // one for each argument of forward() but the context
    for (size_t i = 0; i < 4; ++i) results[i + 1] = torch::empty_like(saved[i]);
    const auto at = [&](size_t i) { return data_or_null<T>(results[i]); };
    layers.gradients(data_or_null<const T>(total), {at(1), at(2), at(3), at(4)});
    for (size_t i = 1; i <= 4; ++i) {
      if (!context->needs_input_grad(i)) results[i].reset();
    }
    return results;
  }
};

}  // namespace

bool lenet_features_take(const torch::Tensor& X) {
  return X.is_cpu() && (X.scalar_type() == torch::kFloat32 || X.scalar_type() == torch::kFloat64) &&
         !(X.requires_grad() && torch::GradMode::is_enabled());
}

template <class T>
torch::Tensor lenet_features(const torch::Tensor& X, const torch::Tensor& W1, const torch::Tensor& b1,
                             const torch::Tensor& W2, const torch::Tensor& b2, const LeNetLayers<T>& layers) {
  check_params<T>(
      {{X, {X.size(0), 1, 28, 28}}, {W1, {20, 1, 3, 3}}, {b1, {20}}, {W2, {50, 20, 5, 5}}, {b2, {50}}});
  TORCH_CHECK(
      lenet_features_take(X),
      "lockstep's kernels of LeNet compute no gradient of the images, which these images need; torch's do "
      "(Kernels::kTorch)");
  const bool keeps = torch::GradMode::is_enabled() &&
                     (W1.requires_grad() || b1.requires_grad() || W2.requires_grad() || b2.requires_grad());
  return LeNetFeatures<T>::apply(X, W1, b1, W2, b2, &layers, keeps);
}

template torch::Tensor lenet_features<float>(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&,
                                             const torch::Tensor&, const torch::Tensor&,
                                             const LeNetLayers<float>&);
template torch::Tensor lenet_features<double>(const torch::Tensor&, const torch::Tensor&,
                                              const torch::Tensor&, const torch::Tensor&,
                                              const torch::Tensor&, const LeNetLayers<double>&);

}  // namespace lockstep
