// A BatchNormPasses table, for the capability whose source includes this. Every pass waits for memory: what
// is computed in it costs next to nothing.
#pragma once

#include <lockstep/models/cpu/batch_norm_passes.h>
#include <lockstep/models/cpu/lanes.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// Rows whose sums are taken in float before they are added to those in double: one chain over all rows would
// lose digits, and conversions of every number time.
inline constexpr int64_t kRowsInFloat = 16;

// add(row, channel, first sum, second sum), for all rows and kLanes channels at a time.
template <class Add>
inline void sum_rows(int64_t c, int64_t first, int64_t last, float* scratch, double* sums, const Add& add) {
  for (int64_t begin = first; begin < last; begin += kRowsInFloat) {
    const int64_t end = last - begin < kRowsInFloat ? last : begin + kRowsInFloat;
    for (int64_t i = 0; i < 2 * c; ++i) scratch[i] = 0;
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t channel = 0; channel < c; channel += kLanes) {
        Lanes<float> a = load(scratch + channel), b = load(scratch + c + channel);
        add(row, channel, a, b);
        store(a, scratch + channel);
        store(b, scratch + c + channel);
      }
    }
    for (int64_t i = 0; i < 2 * c; ++i) sums[i] += scratch[i];
  }
}

// kLanes channels of dz and of x - origin in one row.
template <class T>
inline void load_backward(const BatchNormBackward<T>& layer, int64_t row, int64_t channel, Lanes<float>& dz,
                          Lanes<float>& x) {
  const int64_t at = row * layer.c + channel;
  dz = load(layer.y + at) <= Lanes<float>{} ? Lanes<float>{}
                                            : load(layer.dy + at);  // NaN goes on, as in torch
  x = load(layer.x + at) - load(layer.x + channel);
}

template <class T>
inline void batch_norm_statistics(const BatchNormForward<T>& layer, int64_t first, int64_t last,
                                  float* scratch, double* sums) {
  sum_rows(layer.c, first, last, scratch, sums, [&](int64_t row, int64_t channel, auto& sum, auto& squares) {
    const Lanes<float> d = load(layer.x + row * layer.c + channel) - load(layer.x + channel);
    sum += d;
    squares += d * d;
  });
}

template <class T>
inline void batch_norm_apply(const BatchNormForward<T>& layer, const float* scale, const float* shift,
                             int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t channel = 0; channel < layer.c; channel += kLanes) {
      const int64_t at = row * layer.c + channel;
      Lanes<float> z =
          (load(layer.x + at) - load(layer.x + channel)) * load(scale + channel) + load(shift + channel);
      if (layer.residual) z += load(layer.residual + at);
      store(z < Lanes<float>{} ? Lanes<float>{} : z, layer.y + at);  // NaN stays
    }
  }
}

template <class T>
inline void batch_norm_gradient_sums(const BatchNormBackward<T>& layer, int64_t first, int64_t last,
                                     float* scratch, double* sums) {
  sum_rows(layer.c, first, last, scratch, sums, [&](int64_t row, int64_t channel, auto& sum, auto& products) {
    Lanes<float> dz, x;
    load_backward(layer, row, channel, dz, x);
    sum += dz;
    products += dz * x;
  });
}

template <class T>
inline void batch_norm_input_gradient(const BatchNormBackward<T>& layer, const float* of_dz,
                                      const float* of_x, const float* constant, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t channel = 0; channel < layer.c; channel += kLanes) {
      const int64_t at = row * layer.c + channel;
      Lanes<float> dz, x;
      load_backward(layer, row, channel, dz, x);
      if (layer.dresidual) store(dz, layer.dresidual + at);
      store(load(of_dz + channel) * dz + load(of_x + channel) * x + load(constant + channel), layer.dx + at);
    }
  }
}

template <class T>
inline constexpr BatchNormPasses<T> kBatchNormPasses = {.statistics = batch_norm_statistics<T>,
                                                        .apply = batch_norm_apply<T>,
                                                        .gradient_sums = batch_norm_gradient_sums<T>,
                                                        .input_gradient = batch_norm_input_gradient<T>};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
