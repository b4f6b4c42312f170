// CUDA kernels for the cross-entropy of rows with classes, and what its metrics count. Needs no torch.
// class_loss.h has them as an operation.
//
// With x (rows, classes) and the label l of each row,
//   loss = sum over the rows of log(sum_j exp(x_j)) - x_l
// Row by row in float, the sum over rows in double. Results have the same bits in every run, on every GPU.
#pragma once

#include <cstdint>

#include <lockstep/support/bf16.h>
#include <lockstep/support/cuda/kernel.h>

namespace lockstep {

// All memory is on the current CUDA device. T: float or Bf16.
template <class T>
struct ClassLossForward {
  int64_t rows = 0;
  int64_t classes = 0;              // at least 1
  const T* logits = nullptr;        // (rows, classes)
  const int64_t* labels = nullptr;  // (rows), each 0 .. classes - 1: a kernel ends the GPU's work otherwise
  float* largest = nullptr;         // (rows): the largest logit
  float* inverse = nullptr;         // (rows): 1 / sum of exp(logit - largest)
  float* loss = nullptr;            // ()
  // (2): rows whose class has the largest logit, which is the first of those that are as large, and NaN is
  // larger than all numbers; rows with fewer than five logits that are larger than their class's.
  int64_t* counts = nullptr;
  double* workspace = nullptr;  // (class_loss_workspace()); null if that is 0
};

template <class T>
struct ClassLossBackward {
  int64_t rows = 0;
  int64_t classes = 0;
  const T* logits = nullptr;
  const int64_t* labels = nullptr;
  const float* largest = nullptr;  // of the forward pass, as inverse
  const float* inverse = nullptr;
  const float* dloss = nullptr;  // (): gradient of the loss
  T* dlogits = nullptr;          // (rows, classes)
};

// Each returns before the work is done: one launch, or two in the forward pass of many rows. Throws
// DeviceError when a kernel cannot be started, and in a build without CUDA.
void class_loss_forward(const ClassLossForward<float>& pass, CUstream_st* stream);
void class_loss_forward(const ClassLossForward<Bf16>& pass, CUstream_st* stream);
void class_loss_backward(const ClassLossBackward<float>& pass, CUstream_st* stream);
void class_loss_backward(const ClassLossBackward<Bf16>& pass, CUstream_st* stream);

// Returns true if these functions can be called, with memory of a GPU or of the host.
bool class_loss_kernels_take(bool gpu_memory);

// How the blocks of kThreads cover the rows: `lanes` neighbouring threads have a row, a block has `lines` at
// a time.
struct ClassLossTiles {
  static constexpr int kThreads = 512;

  int lanes;  // a power of two, at most a warp
  int lines;  // kThreads / lanes
  int64_t blocks;
};

// Lanes have about eight classes each. Up to four lines of rows are one block's: it needs no second kernel.
inline ClassLossTiles class_loss_tiles(int64_t rows, int64_t classes) {
  ClassLossTiles tiles{};
  for (tiles.lanes = 1; tiles.lanes * 8 < classes && tiles.lanes < 32;) tiles.lanes *= 2;
  tiles.lines = ClassLossTiles::kThreads / tiles.lanes;
  const int64_t blocks = rows <= 4 * tiles.lines ? 1 : ceil_div(rows, tiles.lines);
  tiles.blocks = blocks < 1024 ? blocks : 1024;
  return tiles;
}

// Size of the workspace in doubles: three sums for each block, if there is more than one.
inline int64_t class_loss_workspace(int64_t rows, int64_t classes) {
  const int64_t blocks = class_loss_tiles(rows, classes).blocks;
  return blocks > 1 ? 3 * blocks : 0;
}

}  // namespace lockstep
