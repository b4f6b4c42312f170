// CUDA kernels for batch normalisation in training, the addition of a residual, and ReLU. Each pass reads and
// writes an activation once. Needs no torch. Networks call batch_norm_relu.h instead.
//
// With x (rows, c), and mean and variance of each channel over the rows,
//   z = (x - mean) invstd weight + bias [+ residual + residual_bias],   y = relu(z),
//   invstd = 1 / sqrt(variance + eps)
// (Ioffe and Szegedy, "Batch Normalization", 2015). T is float or Bf16; everything else is float. Sums over
// many rows are finished in double. Results have the same bits in every run, on every GPU.
//
// Each channel is shifted by its value in row 0, the origin. The squares of the shifted values lose no digits
// to a large mean.
//
// Each direction is two kernels: sums, and a pass that writes. The last block of the sums finishes them.
#pragma once

#include <cstdint>
#include <initializer_list>

#include <lockstep/models/layers/batch_norm/batch_norm_layers.h>
#include <lockstep/support/bf16.h>

namespace lockstep {

// Pointers to (rows, c) and to the workspace are aligned to kVectorBytes. Each returns before the work is
// done. Throws DeviceError when a kernel cannot be started, and in a build without CUDA.
void batch_norm_relu_forward(const BatchNormForward<float>& layer, CUstream_st* stream);
void batch_norm_relu_forward(const BatchNormForward<Bf16>& layer, CUstream_st* stream);
void batch_norm_relu_backward(const BatchNormBackward<float>& layer, CUstream_st* stream);
void batch_norm_relu_backward(const BatchNormBackward<Bf16>& layer, CUstream_st* stream);

// Returns true if these functions can be called, with memory of a GPU or of the host.
bool batch_norm_kernels_take(bool gpu_memory);

// The number of neighbouring channels of a thread: as many as one load takes if c is a multiple, else 1.
// bytes: of a value.
inline int batch_norm_vector(int64_t c, int64_t bytes) {
  const int64_t wide = kVectorBytes / bytes;
  return c % wide == 0 ? static_cast<int>(wide) : 1;
}

// How a kernel's blocks of kThreads cover (rows, c). A thread has `vector` neighbouring channels. A row of
// `lanes` threads covers neighbouring channels, and a block has `lines` such rows. The grid is (chunks,
// tiles).
struct BatchNormTiles {
  static constexpr int kThreads = 256;

  int lanes;           // a power of two
  int lines;           // kThreads / lanes
  int64_t tiles;       // of lanes * vector channels
  int64_t chunks;      // of rows
  int64_t chunk_rows;  // of each chunk but the last
};

// max_lanes: a power of two. `rows_each`: rows of a thread, at least, if there are that many. A thread gets
// more if there would be more than max_blocks blocks.
inline BatchNormTiles batch_norm_tiles(int64_t rows, int64_t c, int vector, int max_lanes, int64_t rows_each,
                                       int64_t max_blocks) {
  const int64_t vectors = c / vector;
  BatchNormTiles tiles{};
  for (tiles.lanes = 1; tiles.lanes < vectors && tiles.lanes < max_lanes;) tiles.lanes *= 2;
  tiles.lines = BatchNormTiles::kThreads / tiles.lanes;
  tiles.tiles = ceil_div(vectors, tiles.lanes);
  const int64_t least = ceil_div(rows, tiles.lines * rows_each);
  const int64_t most = max_blocks / tiles.tiles < 1 ? 1 : max_blocks / tiles.tiles;
  tiles.chunk_rows = ceil_div(rows, least < most ? least : most);
  tiles.chunks = ceil_div(rows, tiles.chunk_rows);
  return tiles;
}

// Channels of a tile of sums, at most. The block that finishes last adds up a tile's partial sums alone: few
// channels, 64 bytes of a row in bfloat16, keep that short.
inline constexpr int kSumChannels = 32;

// Blocks of sums, at most: those that an H100 or H200 with 132 multiprocessors runs at once, so that none
// waits until another one ends. The number is the same on all GPUs, since it decides the order of sums and
// thus their bits. Three blocks fit a multiprocessor while a thread has at most 80 registers.
inline constexpr int kSumBlocksTogether = 3;
inline constexpr int64_t kSumBlocks = 132 * kSumBlocksTogether;

inline BatchNormTiles batch_norm_sum_tiles(int64_t rows, int64_t c, int vector) {
  return batch_norm_tiles(rows, c, vector, kSumChannels / vector, /*rows_each=*/4, kSumBlocks);
}

// Size of the workspace in floats: two partial sums for each chunk and channel, and three coefficients for
// each channel.
inline int64_t batch_norm_workspace(int64_t rows, int64_t c) {
  int64_t chunks = 0;
  for (const int vector : {1, 4, 8}) {
    if (c % vector != 0) continue;
    const auto tiles = batch_norm_sum_tiles(rows, c, vector);
    chunks = tiles.chunks > chunks ? tiles.chunks : chunks;
  }
  return (2 * chunks + 3) * c;
}

// Number of counters of finished blocks: one for each tile of sums, which are as many for each vector width.
inline int64_t batch_norm_counters(int64_t c) { return ceil_div(c, kSumChannels); }

}  // namespace lockstep
