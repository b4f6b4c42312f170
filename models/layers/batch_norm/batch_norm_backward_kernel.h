// The backward pass of batch_norm_kernels.h, in two kernels: see support/cuda/kernel.h.
#pragma once

#include <lockstep/models/layers/batch_norm/batch_norm_fold.h>
#include <lockstep/models/layers/batch_norm/batch_norm_sums_kernel.h>

namespace lockstep {

// Pointers into a layer's workspace. finish_gradients() explains the last three.
template <class T>
struct BatchNormBackwardPass {
  BatchNormBackward<T> layer;
  BatchNormTiles sum_tiles;
  float* partials;  // (2, chunks, c) sums of dz and of dz (x - origin)
  float* of_dz;     // (c)
  float* of_x;      // (c)
  float* constant;  // (c)
};

// N channels of one row, as they lie in memory.
template <class T, int N>
struct BatchNormRow {
  int64_t i;  // index of the first of them in (rows, c)
  Vector<T, N> dy, more_dy, x;
  unsigned passed;  // the mask's byte
};

template <int N, class T>
__device__ BatchNormRow<T, N> row_at(const BatchNormBackward<T>& layer, int64_t i) {
  BatchNormRow<T, N> row{i, vector_at<N>(layer.dy + i), {}, vector_at<N>(layer.x + i), layer.mask[i / N]};
  if (layer.more_dy != nullptr) row.more_dy = vector_at<N>(layer.more_dy + i);
  return row;
}

template <int N, class T>
__device__ void gradient_of(const BatchNormBackward<T>& layer, const BatchNormRow<T, N>& row,
                            float (&dz)[N]) {
  for (int k = 0; k < N; ++k) dz[k] = to_float(row.dy.values[k]);
  if (layer.more_dy != nullptr) {
    for (int k = 0; k < N; ++k) dz[k] = to_float(from_float<T>(dz[k] + to_float(row.more_dy.values[k])));
  }
  for (int k = 0; k < N; ++k) dz[k] = (row.passed >> k & 1u) != 0 ? dz[k] : 0;
}

// Also writes dz where it is the residual's gradient. The last block of each tile turns its channels' sums
// into gradients and factors.
template <class T, int N>
__global__ void __launch_bounds__(BatchNormTiles::kThreads, kSumBlocksTogether)
    batch_norm_gradient_sums_kernel(BatchNormBackwardPass<T> pass) {
  const auto& layer = pass.layer;
  const BatchNormPlace<N> at(pass.sum_tiles, layer.rows, layer.c);
  float sums[N] = {};
  float products[N] = {};
  if (at.inside) {
    float origin[N];
    load(layer.x + at.channel, origin);
    const auto get = [&](int64_t row) { return row_at<N>(layer, row * layer.c + at.channel); };
    const auto add = [&](const BatchNormRow<T, N>& row) {
      float dz[N];
      gradient_of(layer, row, dz);
      for (int k = 0; k < N; ++k) {
        sums[k] += dz[k];
        products[k] += dz[k] * (to_float(row.x.values[k]) - origin[k]);
      }
      if (layer.dresidual != nullptr) store(layer.dresidual + row.i, dz);
    };
    for_rows<2>(at.first, at.last, pass.sum_tiles.lines, get, add);
  }
  store_partials(sums, products, at, pass.sum_tiles, layer.c, pass.partials);
  if (!arrives_last(layer.arrived + blockIdx.y, pass.sum_tiles.chunks)) return;
  fold_partials<N>(pass.partials, pass.sum_tiles, layer.c, [&](int64_t channel, double sum, double product) {
    finish_gradients(layer, channel, sum, product, pass.of_dz, pass.of_x, pass.constant);
  });
}

// Reads dz where the first pass has written it.
template <class T, int N>
__global__ void batch_norm_input_gradient_kernel(BatchNormBackwardPass<T> pass, BatchNormTiles tiles) {
  const auto& layer = pass.layer;
  const BatchNormPlace<N> at(tiles, layer.rows, layer.c);
  if (!at.inside) return;
  float origin[N], of_dz[N], of_x[N], constant[N];
  load(layer.x + at.channel, origin);
  load(pass.of_dz + at.channel, of_dz);
  load(pass.of_x + at.channel, of_x);
  load(pass.constant + at.channel, constant);
  for (int64_t row = at.first; row < at.last; row += tiles.lines) {
    const int64_t i = row * layer.c + at.channel;
    float dz[N], x[N];
    load(layer.x + i, x);
    if (layer.dresidual != nullptr) {
      load(layer.dresidual + i, dz);
    } else {
      gradient_of(layer, row_at<N>(layer, i), dz);
    }
    for (int k = 0; k < N; ++k) x[k] = of_dz[k] * dz[k] + of_x[k] * (x[k] - origin[k]) + constant[k];
    store(layer.dx + i, x);
  }
}

template <class Launch, class T>
void batch_norm_backward_with(const Launch& launch, const BatchNormBackward<T>& layer) {
  constexpr dim3 kBlock{BatchNormTiles::kThreads, 1, 1};
  const auto run = [&]<int N>(VectorWidth<N>) {
    BatchNormBackwardPass<T> pass{
        layer, batch_norm_sum_tiles(layer.rows, layer.c, N), nullptr, nullptr, nullptr, nullptr};
    pass.of_dz = layer.workspace;
    pass.of_x = pass.of_dz + layer.c;
    pass.constant = pass.of_x + layer.c;
    pass.partials = pass.constant + layer.c;
    launch(batch_norm_gradient_sums_kernel<T, N>, grid_of(pass.sum_tiles), kBlock, pass);
    const auto tiles = batch_norm_map_tiles(layer.rows, layer.c, N);
    launch(batch_norm_input_gradient_kernel<T, N>, grid_of(tiles), kBlock, pass, tiles);
  };
  with_vector_width<T>(layer.c, run);
}

}  // namespace lockstep
