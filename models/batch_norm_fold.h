// Turns a channel's sums over all rows into statistics and gradients, in double. For CUDA kernels and for
// CPUs.
#pragma once

#include <cmath>

#include <lockstep/models/batch_norm_kernels.h>

namespace lockstep {

// sum and squares are the sums of x - origin and of its square over the rows. Writes the channel's centre,
// invstd and running statistics, and the scale and shift of z = (x - origin) scale + shift.
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_statistics(const BatchNormForward<T, In>& layer, int64_t channel, double sum,
                                            double squares, float* scales, float* shifts) {
  const auto n = static_cast<double>(layer.rows);
  const double centre = sum / n;
  const double difference = squares / n - centre * centre;
  const double variance = difference < 0 ? 0 : difference;  // NaN stays
  const double invstd = 1 / sqrt(variance + layer.eps);
  layer.centre[channel] = static_cast<float>(centre);
  layer.invstd[channel] = static_cast<float>(invstd);
  const double scale = layer.weight[channel] * invstd;
  scales[channel] = static_cast<float>(scale);
  shifts[channel] = static_cast<float>(layer.bias[channel] - centre * scale);

  const double mean = to_float(layer.x[channel]) + centre + (layer.conv_bias ? layer.conv_bias[channel] : 0);
  const auto follow = [&](float& running, double batch) {
    running = static_cast<float>(running + layer.momentum * (batch - running));
  };
  follow(layer.running_mean[channel], mean);
  follow(layer.running_var[channel], variance * n / (n - 1));
}

// sum and products are the sums of dz and of dz (x - origin) over the rows, where dz is dy if y > 0, else 0.
// With x and mean counted from the origin, so that mean is centre,
//   dbias = sum(dz),  dweight = invstd sum(dz (x - mean)),
//   dx = weight invstd (dz - dbias / rows - (x - mean) invstd dweight / rows)
//      = of_dz dz + of_x x + constant
template <class T, class In>
LOCKSTEP_HOST_DEVICE void finish_gradients(const BatchNormBackward<T, In>& layer, int64_t channel, double sum,
                                           double products, float* of_dzs, float* of_xs, float* constants) {
  const auto n = static_cast<double>(layer.rows);
  const double centre = layer.centre[channel];
  const double invstd = layer.invstd[channel];
  const double dweight = (products - centre * sum) * invstd;
  layer.dbias[channel] = static_cast<float>(sum);
  layer.dweight[channel] = static_cast<float>(dweight);
  const double of_dz = layer.weight[channel] * invstd;
  const double of_x = -of_dz * invstd * dweight / n;
  of_dzs[channel] = static_cast<float>(of_dz);
  of_xs[channel] = static_cast<float>(of_x);
  constants[channel] = static_cast<float>(-of_dz * sum / n - of_x * centre);
}

}  // namespace lockstep
