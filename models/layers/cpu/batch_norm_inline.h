// A BatchNormPasses table for the capability whose source includes this header. Memory bounds every pass: its
// arithmetic costs next to nothing. Each pass reads arrays from one end to the other, which CPUs prefetch
// best; 16 channels of all rows at a time took two to three times as long.
#pragma once

#include <lockstep/models/layers/cpu/batch_norm_passes.h>
#include <lockstep/models/layers/cpu/lanes.h>
#include <lockstep/models/layers/cpu/streams.h>

namespace lockstep::LOCKSTEP_LANES_NAMESPACE {

// How many rows are summed in float before the sum is added in double. One chain in float over all rows would
// lose digits; converting every number would take time.
inline constexpr int64_t kRowsInFloat = 16;

// Calls add(row, channel, first sum, second sum) for all rows, kLanes channels at a time.
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

// Loads kLanes channels of dz and of x - origin from one row.
template <class T, class In>
inline void load_backward(const BatchNormBackward<T, In>& layer, int64_t row, int64_t channel,
                          Lanes<float>& dz, Lanes<float>& x) {
  const int64_t at = row * layer.c + channel;
  prefetch_ahead(layer.dy + at);
  prefetch_ahead(layer.x + at);
  const uint32_t passed = layer.passed[at / kPassedWord] >> (at % kPassedWord);
  dz = values_where(passed, load(layer.dy + at));
  x = load(layer.x + at) - load(layer.x + channel);
}

template <class T, class In>
inline void batch_norm_statistics(const BatchNormForward<T, In>& layer, int64_t first, int64_t last,
                                  float* scratch, double* sums) {
  sum_rows(layer.c, first, last, scratch, sums, [&](int64_t row, int64_t channel, auto& sum, auto& squares) {
    const In* x = layer.x + row * layer.c + channel;
    prefetch_ahead(x);
    const Lanes<float> d = load(x) - load(layer.x + channel);
    sum += d;
    squares += d * d;
  });
}

// Writes y for kLanes channels of one row. Returns where ReLU passes z, as bits.
template <class T, class In>
inline uint32_t apply_to(const BatchNormForward<T, In>& layer, const float* scale, const float* shift,
                         int64_t row, int64_t channel) {
  const int64_t at = row * layer.c + channel;
  prefetch_ahead(layer.x + at);
  Lanes<float> z =
      (load(layer.x + at) - load(layer.x + channel)) * load(scale + channel) + load(shift + channel);
  if (layer.residual) {
    prefetch_ahead(layer.residual + at);
    z += load(layer.residual + at);
  }
  const Integers<float> stopped = z <= Lanes<float>{};  // not NaN, as in torch
  stream(stopped ? Lanes<float>{} : z, layer.y + at);
  return bits_of(~stopped);
}

template <class T, class In>
inline void batch_norm_apply(const BatchNormForward<T, In>& layer, const float* scale, const float* shift,
                             int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t channel = 0; channel < layer.c; channel += kPassedWord) {
      uint32_t passed = 0;
      for (int i = 0; i < kPassedWord; i += kLanes) {
        passed |= apply_to(layer, scale, shift, row, channel + i) << i;
      }
      layer.passed[(row * layer.c + channel) / kPassedWord] = static_cast<uint16_t>(passed);
    }
  }
  streams_done();
}

template <class T, class In>
inline void batch_norm_gradient_sums(const BatchNormBackward<T, In>& layer, int64_t first, int64_t last,
                                     float* scratch, double* sums) {
  sum_rows(layer.c, first, last, scratch, sums, [&](int64_t row, int64_t channel, auto& sum, auto& products) {
    Lanes<float> dz, x;
    load_backward(layer, row, channel, dz, x);
    sum += dz;
    products += dz * x;
  });
}

template <class T, class In>
inline void batch_norm_input_gradient(const BatchNormBackward<T, In>& layer, const float* of_dz,
                                      const float* of_x, const float* constant, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    for (int64_t channel = 0; channel < layer.c; channel += kLanes) {
      const int64_t at = row * layer.c + channel;
      Lanes<float> dz, x;
      load_backward(layer, row, channel, dz, x);
      if (layer.dresidual) stream(dz, layer.dresidual + at);
      stream(load(of_dz + channel) * dz + load(of_x + channel) * x + load(constant + channel), layer.dx + at);
    }
  }
  streams_done();
}

template <class T, class In = T>
inline constexpr BatchNormPasses<T, In> kBatchNormPasses = {
    .statistics = batch_norm_statistics<T, In>,
    .apply = batch_norm_apply<T, In>,
    .gradient_sums = batch_norm_gradient_sums<T, In>,
    .input_gradient = batch_norm_input_gradient<T, In>};

}  // namespace lockstep::LOCKSTEP_LANES_NAMESPACE
