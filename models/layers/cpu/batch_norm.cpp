#include <lockstep/models/layers/cpu/batch_norm.h>

#include <span>
#include <type_traits>
#include <vector>

#include <lockstep/models/layers/batch_norm/batch_norm_fold.h>
#include <lockstep/support/cpu/parallel_parts.h>

namespace lockstep {
namespace {

template <class T, class In>
const BatchNormPasses<T, In>& batch_norm_passes(const CpuKernels<float>& kernels) {
  if constexpr (!std::is_same_v<T, In>) {
    return *kernels.bf16_batch_norm_of_floats;
  } else if constexpr (std::is_same_v<T, Bf16>) {
    return *kernels.bf16_batch_norm;
  } else {
    return *kernels.batch_norm;
  }
}

// Returns two sums over all rows for each channel, (2, c). pass(first row, last row, scratch, sums) adds
// those of a range of rows.
template <class Pass>
std::vector<double> sums_over_rows(int64_t rows, int64_t c, int threads, const Pass& pass) {
  const auto size = static_cast<size_t>(2 * c), all = static_cast<size_t>(threads) * size;
  std::vector<double> sums(all);
  std::vector<float> scratch(all);
  parallel_ranges(rows, threads, [&](int64_t first, int64_t last, int64_t thread) {
    pass(first, last, scratch.data() + thread * 2 * c, sums.data() + thread * 2 * c);
  });
  for (size_t i = size; i < all; ++i) sums[i % size] += sums[i];
  return sums;
}

// The scale and shift of each channel, (c) each, and the statistics behind them.
template <class T, class In>
void finish_forward(const BatchNormForward<T, In>& layer, std::span<const double> sums,
                    const MergeMoments& merge, float* scale, float* shift) {
  const auto c = static_cast<size_t>(layer.c);
  if (!merge) {
    for (size_t i = 0; i < c; ++i) {
      finish_statistics(layer, static_cast<int64_t>(i), sums[i], sums[c + i], scale, shift);
    }
    return;
  }
  const auto n = static_cast<double>(layer.rows);
  std::vector<double> means(c), variances(c);
  for (size_t i = 0; i < c; ++i) {
    means[i] = mean_with_bias(layer, static_cast<int64_t>(i), sums[i] / n);
    variances[i] = variance_of(n, sums[i] / n, sums[c + i]);
  }
  merge(means, variances);
  for (size_t i = 0; i < c; ++i) {
    const auto channel = static_cast<int64_t>(i);
    const double centre = means[i] - mean_with_bias(layer, channel, 0);
    finish_normalisation(layer, channel, centre, variances[i], scale, shift);
  }
}

// The three factors of the rows' gradients, (c) each, dweight and dbias.
template <class T, class In>
void finish_backward(const BatchNormBackward<T, In>& layer, std::span<const double> sums,
                     const MergeGradients& merge, float* of_dz, float* of_x, float* constant) {
  const auto c = static_cast<size_t>(layer.c);
  std::vector<double> dbias(sums.begin(), sums.begin() + layer.c), dweight(c);
  for (size_t i = 0; i < c; ++i) {
    const auto channel = static_cast<int64_t>(i);
    dweight[i] = weight_gradient(layer, channel, sums[i], sums[c + i]);
    finish_weight_gradients(layer, channel, sums[i], dweight[i]);
  }
  const double n = merge ? merge(dbias, dweight) : static_cast<double>(layer.rows);
  for (size_t i = 0; i < c; ++i) {
    finish_input_gradient(layer, static_cast<int64_t>(i), n, dbias[i], dweight[i], of_dz, of_x, constant);
  }
}

}  // namespace

template <class T, class In>
void batch_norm_relu_forward_on_cpu(const BatchNormForward<T, In>& layer, const CpuKernels<float>& kernels,
                                    int threads, const MergeMoments& merge) {
  const auto& passes = batch_norm_passes<T, In>(kernels);
  const auto sums = sums_over_rows(layer.rows, layer.c, threads,
                                   [&](auto... range) { passes.statistics(layer, range...); });
  const auto c = static_cast<size_t>(layer.c);
  std::vector<float> scale(c), shift(c);
  finish_forward(layer, sums, merge, scale.data(), shift.data());
  parallel_ranges(layer.rows, threads, [&](int64_t first, int64_t last, int64_t) {
    passes.apply(layer, scale.data(), shift.data(), first, last);
  });
  if (layer.batches) ++*layer.batches;
}

template <class T, class In>
void batch_norm_relu_backward_on_cpu(const BatchNormBackward<T, In>& layer, const CpuKernels<float>& kernels,
                                     int threads, const MergeGradients& merge) {
  const auto& passes = batch_norm_passes<T, In>(kernels);
  const auto sums = sums_over_rows(layer.rows, layer.c, threads,
                                   [&](auto... range) { passes.gradient_sums(layer, range...); });
  const auto c = static_cast<size_t>(layer.c);
  std::vector<float> of_dz(c), of_x(c), constant(c);
  finish_backward(layer, sums, merge, of_dz.data(), of_x.data(), constant.data());
  parallel_ranges(layer.rows, threads, [&](int64_t first, int64_t last, int64_t) {
    passes.input_gradient(layer, of_dz.data(), of_x.data(), constant.data(), first, last);
  });
}

using Floats = CpuKernels<float>;
template void batch_norm_relu_forward_on_cpu(const BatchNormForward<float>&, const Floats&, int,
                                             const MergeMoments&);
template void batch_norm_relu_forward_on_cpu(const BatchNormForward<Bf16>&, const Floats&, int,
                                             const MergeMoments&);
template void batch_norm_relu_forward_on_cpu(const BatchNormForward<Bf16, float>&, const Floats&, int,
                                             const MergeMoments&);
template void batch_norm_relu_backward_on_cpu(const BatchNormBackward<float>&, const Floats&, int,
                                              const MergeGradients&);
template void batch_norm_relu_backward_on_cpu(const BatchNormBackward<Bf16>&, const Floats&, int,
                                              const MergeGradients&);
template void batch_norm_relu_backward_on_cpu(const BatchNormBackward<Bf16, float>&, const Floats&, int,
                                              const MergeGradients&);

}  // namespace lockstep
