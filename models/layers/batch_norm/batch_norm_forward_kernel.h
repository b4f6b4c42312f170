// The forward pass of batch_norm_kernels.h, in two kernels: see support/cuda/kernel.h.
#pragma once

#include <lockstep/models/layers/batch_norm/batch_norm_fold.h>
#include <lockstep/models/layers/batch_norm/batch_norm_sums_kernel.h>

namespace lockstep {

// Pointers into a layer's workspace.
template <class T>
struct BatchNormForwardPass {
  BatchNormForward<T> layer;
  BatchNormTiles sum_tiles;
  float* partials;  // (2, chunks, c) sums of x - origin and of its square
  float* scale;     // (c): z = (x - origin) scale + shift
  float* shift;     // (c)
};

// The last block of each tile turns its channels' sums into statistics.
template <class T, int N>
__global__ void __launch_bounds__(BatchNormTiles::kThreads, kSumBlocksTogether)
    batch_norm_statistics_kernel(BatchNormForwardPass<T> pass) {
  const auto& layer = pass.layer;
  const BatchNormPlace<N> at(pass.sum_tiles, layer.rows, layer.c);
  float sums[N] = {};
  float squares[N] = {};
  if (at.inside) {
    float origin[N];
    load(layer.x + at.channel, origin);
    const auto get = [&](int64_t row) { return vector_at<N>(layer.x + row * layer.c + at.channel); };
    const auto add = [&](const Vector<T, N>& x) {
      for (int k = 0; k < N; ++k) {
        const float d = to_float(x.values[k]) - origin[k];
        sums[k] += d;
        squares[k] += d * d;
      }
    };
    for_rows<4>(at.first, at.last, pass.sum_tiles.lines, get, add);
  }
  store_partials(sums, squares, at, pass.sum_tiles, layer.c, pass.partials);
  if (!arrives_last(layer.arrived + blockIdx.y, pass.sum_tiles.chunks)) return;
  fold_partials<N>(pass.partials, pass.sum_tiles, layer.c, [&](int64_t channel, double sum, double square) {
    finish_statistics(layer, channel, sum, square, pass.scale, pass.shift);
  });
  if (threadIdx.x != 0) return;
  layer.backward_arrived[blockIdx.y] = 0;
  if (blockIdx.y == 0 && layer.batches != nullptr) ++*layer.batches;
}

template <class T, int N>
__global__ void batch_norm_apply_kernel(BatchNormForwardPass<T> pass, BatchNormTiles tiles) {
  const auto& layer = pass.layer;
  const BatchNormPlace<N> at(tiles, layer.rows, layer.c);
  if (!at.inside) return;
  float origin[N], scale[N], shift[N];
  load(layer.x + at.channel, origin);
  load(pass.scale + at.channel, scale);
  load(pass.shift + at.channel, shift);
  for (int64_t row = at.first; row < at.last; row += tiles.lines) {
    const int64_t i = row * layer.c + at.channel;
    float values[N];
    float added[N] = {};
    load(layer.x + i, values);
    if (layer.residual != nullptr) load(layer.residual + i, added);
    unsigned passed = 0;
    for (int k = 0; k < N; ++k) {
      const float z = (values[k] - origin[k]) * scale[k] + shift[k] + added[k];
      values[k] = z < 0 ? 0 : z;          // NaN stays
      passed |= (z <= 0 ? 0u : 1u) << k;  // and keeps its gradient, as in torch
    }
    store(layer.y + i, values);
    layer.mask[i / N] = static_cast<uint8_t>(passed);
  }
}

template <class Launch, class T>
void batch_norm_forward_with(const Launch& launch, const BatchNormForward<T>& layer) {
  constexpr dim3 kBlock{BatchNormTiles::kThreads, 1, 1};
  const auto run = [&]<int N>(VectorWidth<N>) {
    BatchNormForwardPass<T> pass{layer, batch_norm_sum_tiles(layer.rows, layer.c, N), nullptr, nullptr,
                                 nullptr};
    pass.scale = layer.workspace;
    pass.shift = pass.scale + layer.c;
    pass.partials = pass.scale + 3 * layer.c;
    launch(batch_norm_statistics_kernel<T, N>, grid_of(pass.sum_tiles), kBlock, pass);
    const auto tiles = batch_norm_map_tiles(layer.rows, layer.c, N);
    launch(batch_norm_apply_kernel<T, N>, grid_of(tiles), kBlock, pass, tiles);
  };
  with_vector_width<T>(layer.c, run);
}

}  // namespace lockstep
