// Turns a channel's sums over all rows into statistics and gradients, in double. For CUDA kernels and for
// CPUs.
#pragma once

#include <cmath>

#include <lockstep/models/layers/batch_norm/batch_norm_kernels.h>

namespace lockstep {

// Writes the channel's centre and invstd, and the scale and shift of z = (x - origin) scale + shift. centre:
// the mean, counted from the origin.
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_normalisation(const BatchNormForward<T, In>& layer, int64_t channel,
                                               double centre, double variance, float* scales, float* shifts) {
  const double invstd = 1 / sqrt(variance + layer.eps);
  const double scale = layer.weight[channel] * invstd;
  const double bias = layer.bias[channel] + double{layer.residual_bias ? layer.residual_bias[channel] : 0};
  const double shift = bias - centre * scale;
  layer.centre[channel] = static_cast<float>(centre);
  layer.invstd[channel] = static_cast<float>(invstd);
  scales[channel] = static_cast<float>(scale);
  shifts[channel] = static_cast<float>(shift);
}

// Returns the biased variance. centre: mean of x - origin. squares: sum of its squares over n rows.
LOCKSTEP_HOST_DEVICE inline double variance_of(double n, double centre, double squares) {
  const double difference = squares / n - centre * centre;
  return difference < 0 ? 0 : difference;  // NaN stays
}

// Returns the mean of x plus the convolution's bias. centre: the mean of x - origin.
template <class T, class In>
LOCKSTEP_HOST_DEVICE double mean_with_bias(const BatchNormForward<T, In>& layer, int64_t channel,
                                           double centre) {
  return to_float(layer.x[channel]) + centre + (layer.conv_bias ? layer.conv_bias[channel] : 0);
}

// sum and squares are the sums of x - origin and of its square over the rows. Writes what
// finish_normalisation() writes, and the running statistics.
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_statistics(const BatchNormForward<T, In>& layer, int64_t channel, double sum,
                                            double squares, float* scales, float* shifts) {
  const auto n = static_cast<double>(layer.rows);
  const double centre = sum / n;
  const double variance = variance_of(n, centre, squares);
  const auto followed = [&](float running, double batch) {
    return static_cast<float>(running + layer.momentum * (batch - running));
  };
  // Loads before stores: a GPU waits for them once.
  const float running_mean = followed(layer.running_mean[channel], mean_with_bias(layer, channel, centre));
  const float running_var = followed(layer.running_var[channel], variance * n / (n - 1));
  finish_normalisation(layer, channel, centre, variance, scales, shifts);
  layer.running_mean[channel] = running_mean;
  layer.running_var[channel] = running_var;
}

// sum and products are the sums of dz and of dz (x - origin) over the rows, where dz is dy if y > 0, else 0.
// Returns dweight = invstd sum(dz (x - mean)). dbias is sum.
template <class T, class In>
LOCKSTEP_HOST_DEVICE double weight_gradient(const BatchNormBackward<T, In>& layer, int64_t channel,
                                            double sum, double products) {
  const double centre = layer.centre[channel];
  return (products - centre * sum) * layer.invstd[channel];
}

template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_weight_gradients(const BatchNormBackward<T, In>& layer, int64_t channel,
                                                  double dbias, double dweight) {
  layer.dbias[channel] = static_cast<float>(dbias);
  layer.dweight[channel] = static_cast<float>(dweight);
  if (layer.dresidual_bias) layer.dresidual_bias[channel] = static_cast<float>(dbias);
}

// Writes the factors of dx. dbias and dweight are sums over n rows. Here x and mean are counted from the
// origin, so mean is centre:
//   dx = weight invstd (dz - dbias / n - (x - mean) invstd dweight / n)
//      = of_dz dz + of_x x + constant
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_input_gradient(const BatchNormBackward<T, In>& layer, int64_t channel,
                                                double n, double dbias, double dweight, float* of_dzs,
                                                float* of_xs, float* constants) {
  const double centre = layer.centre[channel];
  const double invstd = layer.invstd[channel];
  const double of_dz = layer.weight[channel] * invstd;
  const double of_x = -of_dz * invstd * dweight / n;
  of_dzs[channel] = static_cast<float>(of_dz);
  of_xs[channel] = static_cast<float>(of_x);
  constants[channel] = static_cast<float>(-of_dz * dbias / n - of_x * centre);
}

// All of them, for sums over all rows.
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_gradients(const BatchNormBackward<T, In>& layer, int64_t channel, double sum,
                                           double products, float* of_dzs, float* of_xs, float* constants) {
  const double dweight = weight_gradient(layer, channel, sum, products);
  finish_input_gradient(layer, channel, static_cast<double>(layer.rows), sum, dweight, of_dzs, of_xs,
                        constants);
  finish_weight_gradients(layer, channel, sum, dweight);
}

}  // namespace lockstep
