// The kernels of class_loss_kernels.h. support/cuda/kernel.h explains how such headers are compiled.
#pragma once

#include <cmath>

#include <lockstep/support/cuda/class_loss_kernels.h>
#include <lockstep/support/cuda/kernel_failure.h>

namespace lockstep {

// The sums of one row, or of a block's.
struct ClassSums {
  double loss = 0, top1 = 0, top5 = 0;
};

// Returns the row's label, -1 to threads without a row.
template <class T>
__device__ int64_t label_of(const ClassLossForward<T>& pass, int64_t row) {
  if (row >= pass.rows) return -1;
  const int64_t label = pass.labels[row];
  if (label < 0 || label >= pass.classes) {
    fail_in_kernel("a label is not among the classes");
    return -1;
  }
  return label;
}

// Returns true if argmax() prefers logit `a` of class i to `b` of class j.
__device__ inline bool prefers(float a, int64_t i, float b, int64_t j) {
  const bool a_is_nan = a != a, b_is_nan = b != b;
  if (a_is_nan || b_is_nan) return a_is_nan && (!b_is_nan || i < j);
  return a > b || (a == b && i < j);
}

// One row by `lanes` threads, of which this is number `lane`. All threads of a warp call it. Returns the sums
// to the first of them.
template <class T>
__device__ ClassSums class_row(const ClassLossForward<T>& pass, int64_t row, int lane, int lanes) {
  const int64_t label = label_of(pass, row);
  const int64_t classes = label < 0 ? 0 : pass.classes;
  const T* x = pass.logits + (label < 0 ? 0 : row * pass.classes);

  float largest = -INFINITY;  // passes NaN by: the sum has it
  for (int64_t j = lane; j < classes; j += lanes)
    largest = to_float(x[j]) > largest ? to_float(x[j]) : largest;
  for (int other = lanes / 2; other > 0; other /= 2) {
    const float its = __shfl_xor_sync(0xffffffffu, largest, other, lanes);
    largest = its > largest ? its : largest;
  }

  const float own = label < 0 ? 0 : to_float(x[label]);
  float sum = 0;
  int larger = 0, preferred = 0;  // logits than that of the class
  for (int64_t j = lane; j < classes; j += lanes) {
    const float logit = to_float(x[j]);
    sum += expf(logit - largest);
    larger += logit > own;
    preferred += j != label && prefers(logit, j, own, label);
  }
  for (int other = lanes / 2; other > 0; other /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, other, lanes);
    larger += __shfl_xor_sync(0xffffffffu, larger, other, lanes);
    preferred += __shfl_xor_sync(0xffffffffu, preferred, other, lanes);
  }
  if (label < 0 || lane != 0) return {};
  pass.largest[row] = largest;
  pass.inverse[row] = 1 / sum;
  return {logf(sum) - (own - largest), preferred == 0 ? 1. : 0., larger < 5 ? 1. : 0.};
}

// Adds up the threads' sums of a block, pair by pair: thread 0 has the result.
__device__ inline ClassSums add_class_sums(const ClassSums& own) {
  constexpr int kThreads = ClassLossTiles::kThreads;
  __shared__ double sums[3][kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  sums[0][thread] = own.loss;
  sums[1][thread] = own.top1;
  sums[2][thread] = own.top5;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread >= half) continue;
    for (int k = 0; k < 3; ++k) sums[k][thread] += sums[k][thread + half];
  }
  return {sums[0][thread], sums[1][thread], sums[2][thread]};
}

template <class T>
__device__ void store_class_sums(const ClassLossForward<T>& pass, const ClassSums& sums) {
  *pass.loss = static_cast<float>(sums.loss);
  pass.counts[0] = static_cast<int64_t>(sums.top1);
  pass.counts[1] = static_cast<int64_t>(sums.top5);
}

template <class T>
__global__ void __launch_bounds__(ClassLossTiles::kThreads)
    class_loss_forward_kernel(ClassLossForward<T> pass, ClassLossTiles tiles) {
  const int lane = static_cast<int>(threadIdx.x) % tiles.lanes;
  const int line = static_cast<int>(threadIdx.x) / tiles.lanes;
  ClassSums own;
  for (int64_t first = int64_t{blockIdx.x} * tiles.lines; first < pass.rows;
       first += int64_t{gridDim.x} * tiles.lines) {
    const ClassSums row = class_row(pass, first + line, lane, tiles.lanes);
    own.loss += row.loss;
    own.top1 += row.top1;
    own.top5 += row.top5;
  }
  const ClassSums sums = add_class_sums(own);
  if (threadIdx.x != 0) return;
  if (tiles.blocks == 1) return store_class_sums(pass, sums);
  pass.workspace[blockIdx.x] = sums.loss;
  pass.workspace[tiles.blocks + blockIdx.x] = sums.top1;
  pass.workspace[2 * tiles.blocks + blockIdx.x] = sums.top5;
}

// One block: adds up the blocks' sums.
template <class T>
__global__ void __launch_bounds__(ClassLossTiles::kThreads)
    class_loss_fold_kernel(ClassLossForward<T> pass, ClassLossTiles tiles) {
  ClassSums own;
  for (int64_t block = threadIdx.x; block < tiles.blocks; block += blockDim.x) {
    own.loss += pass.workspace[block];
    own.top1 += pass.workspace[tiles.blocks + block];
    own.top5 += pass.workspace[2 * tiles.blocks + block];
  }
  const ClassSums sums = add_class_sums(own);
  if (threadIdx.x == 0) store_class_sums(pass, sums);
}

// dloss (softmax - 1 at the label)
template <class T>
__global__ void class_loss_backward_kernel(ClassLossBackward<T> pass) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= pass.rows * pass.classes) return;
  const int64_t row = i / pass.classes;
  const float softmax = expf(to_float(pass.logits[i]) - pass.largest[row]) * pass.inverse[row];
  const float wanted = i - row * pass.classes == pass.labels[row] ? 1.F : 0.F;
  pass.dlogits[i] = from_float<T>(*pass.dloss * (softmax - wanted));
}

template <class Launch, class T>
void class_loss_forward_with(const Launch& launch, const ClassLossForward<T>& pass) {
  const ClassLossTiles tiles = class_loss_tiles(pass.rows, pass.classes);
  const dim3 block{ClassLossTiles::kThreads, 1, 1};
  launch(class_loss_forward_kernel<T>, dim3{static_cast<unsigned>(tiles.blocks), 1, 1}, block, pass, tiles);
  if (tiles.blocks > 1) launch(class_loss_fold_kernel<T>, dim3{1, 1, 1}, block, pass, tiles);
}

template <class Launch, class T>
void class_loss_backward_with(const Launch& launch, const ClassLossBackward<T>& pass) {
  constexpr int kThreads = 256;
  const int64_t blocks = ceil_div(pass.rows * pass.classes, kThreads);
  if (blocks == 0) return;
  launch(class_loss_backward_kernel<T>, dim3{static_cast<unsigned>(blocks), 1, 1}, dim3{kThreads, 1, 1},
         pass);
}

}  // namespace lockstep
