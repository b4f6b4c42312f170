// The backward pass of batch_norm_kernels.h, in three kernels: see support/cuda/kernel.h.
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

// Loads N channels of dz and of x - origin from one row. i: index of the first of them in (rows, c).
template <int N, class T>
__device__ void load_backward(const BatchNormBackward<T>& layer, int64_t i, const float (&origin)[N],
                              float (&dz)[N], float (&x)[N]) {
  float y[N];
  load(layer.dy + i, dz);
  load(layer.y + i, y);
  load(layer.x + i, x);
  for (int k = 0; k < N; ++k) {
    dz[k] = y[k] <= 0 ? 0 : dz[k];  // keeps the gradient if y is NaN, as torch does
    x[k] -= origin[k];
  }
}

template <class T, int N>
__global__ void batch_norm_gradient_sums_kernel(BatchNormBackwardPass<T> pass) {
  const auto& layer = pass.layer;
  const BatchNormPlace<N> at(pass.sum_tiles, layer.rows, layer.c);
  float sums[N] = {};
  float products[N] = {};
  if (at.inside) {
    float origin[N];
    load(layer.x + at.channel, origin);
    for_rows(at, pass.sum_tiles.lines, [&](int64_t row) {
      float dz[N], x[N];
      load_backward(layer, row * layer.c + at.channel, origin, dz, x);
      for (int k = 0; k < N; ++k) {
        sums[k] += dz[k];
        products[k] += dz[k] * x[k];
      }
    });
  }
  store_partials(sums, products, at, pass.sum_tiles, layer.c, pass.partials);
}

template <class T>
__global__ void batch_norm_fold_gradients_kernel(BatchNormBackwardPass<T> pass) {
  const auto& layer = pass.layer;
  const auto sums = fold_partials(pass.partials, pass.sum_tiles.chunks, layer.c);
  if (!sums.mine) return;
  finish_gradients(layer, sums.channel, sums.a, sums.b, pass.of_dz, pass.of_x, pass.constant);
}

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
    load_backward(layer, i, origin, dz, x);
    if (layer.dresidual != nullptr) store(layer.dresidual + i, dz);
    for (int k = 0; k < N; ++k) x[k] = of_dz[k] * dz[k] + of_x[k] * x[k] + constant[k];
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
    launch(batch_norm_fold_gradients_kernel<T>, fold_grid(layer.c), kBlock, pass);
    const auto tiles = batch_norm_map_tiles(layer.rows, layer.c, N);
    launch(batch_norm_input_gradient_kernel<T, N>, grid_of(tiles), kBlock, pass, tiles);
  };
  with_vector_width<T>(layer.c, {layer.x, layer.y, layer.dy, layer.dx, layer.dresidual, layer.workspace},
                       run);
}

}  // namespace lockstep
