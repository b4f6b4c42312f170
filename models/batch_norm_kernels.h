// Batch normalisation, the addition of a residual and ReLU of a training step by kernels that read and write
// each activation once a pass. Needs no torch; batch_norm_relu.h is what a network calls.
//
// With x (rows, c) and mean and variance of each channel over the rows,
//   z = (x - mean) invstd weight + bias [+ residual],   y = relu(z),   invstd = 1 / sqrt(variance + eps)
// (Ioffe and Szegedy, "Batch Normalization", 2015). T is float or Bf16; everything else is float, sums over
// many rows are finished in double. Results are the same to the last bit in every run, on every GPU.
//
// Channels are shifted by their value in row 0, the origin: the squares of what is left lose no digits to a
// large mean.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <lockstep/models/batch_norm_layers.h>
#include <lockstep/support/bf16.h>

namespace lockstep {

// Each returns before the work is done. They throw DeviceError where a kernel cannot be started, and in a
// build without CUDA.
void batch_norm_relu_forward(const BatchNormForward<float>& layer, CUstream_st* stream);
void batch_norm_relu_forward(const BatchNormForward<Bf16>& layer, CUstream_st* stream);
void batch_norm_relu_backward(const BatchNormBackward<float>& layer, CUstream_st* stream);
void batch_norm_relu_backward(const BatchNormBackward<Bf16>& layer, CUstream_st* stream);

// Whether they can be called, with memory of a GPU or of the host.
bool batch_norm_kernels_take(bool gpu_memory);

// How a kernel's blocks of kThreads cover (rows, c): a thread has `vector` neighbouring channels, `lanes`
// threads lie beside each other and `lines` such rows of threads below; grid (chunks, tiles).
struct BatchNormTiles {
  static constexpr int kThreads = 256;

  int lanes;           // a power of two
  int lines;           // kThreads / lanes
  int64_t tiles;       // of lanes * vector channels
  int64_t chunks;      // of rows
  int64_t chunk_rows;  // but for the last one's
};

// `rows_each`: how many rows a thread has at least, where there are so many; more where there would be over
// max_blocks.
inline BatchNormTiles batch_norm_tiles(int64_t rows, int64_t c, int vector, int64_t rows_each,
                                       int64_t max_blocks) {
  const int64_t vectors = c / vector;
  BatchNormTiles tiles{};
  for (tiles.lanes = 1; tiles.lanes < vectors && tiles.lanes < 32;) tiles.lanes *= 2;
  tiles.lines = BatchNormTiles::kThreads / tiles.lanes;
  tiles.tiles = ceil_div(vectors, tiles.lanes);
  const int64_t least = ceil_div(rows, tiles.lines * rows_each);
  const int64_t most = max_blocks / tiles.tiles < 1 ? 1 : max_blocks / tiles.tiles;
  tiles.chunk_rows = ceil_div(rows, least < most ? least : most);
  tiles.chunks = ceil_div(rows, tiles.chunk_rows);
  return tiles;
}

// For sums: about four blocks for each multiprocessor of a large GPU, so that few partial sums remain.
inline BatchNormTiles batch_norm_sum_tiles(int64_t rows, int64_t c, int vector) {
  return batch_norm_tiles(rows, c, vector, /*rows_each=*/4, /*max_blocks=*/512);
}

// floats: two partial sums for each chunk and channel, and three coefficients for each channel.
inline int64_t batch_norm_workspace(int64_t rows, int64_t c) {
  int64_t chunks = 0;
  for (const int vector : {1, 4, 8}) {
    if (c % vector != 0) continue;
    const auto tiles = batch_norm_sum_tiles(rows, c, vector);
    chunks = tiles.chunks > chunks ? tiles.chunks : chunks;
  }
  return (2 * chunks + 3) * c;
}

}  // namespace lockstep
