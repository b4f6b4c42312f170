// Arguments of a fused batch normalisation in training: see batch_norm_kernels.h. Pointers are to memory of
// the device that computes. The only include is <stdint.h>: sources for one CPU capability include this
// header too (cpu/lanes.h).
#pragma once

#include <stdint.h>

namespace lockstep {

// How many values one element of `passed` has bits for, the first in the lowest bit.
inline constexpr int kPassedWord = 16;

// T is the type of activations, float or Bf16. In is the type of what is normalised and of its gradient: T or
// float.
template <class T, class In = T>
struct BatchNormForward {
  int64_t rows = 0;  // at least 2
  int64_t c = 0;
  const In* x = nullptr;                 // (rows, c)
  const T* residual = nullptr;           // (rows, c), may be null
  const float* residual_bias = nullptr;  // (c), may be null: added to each row
  const float* weight = nullptr;         // (c)
  const float* bias = nullptr;           // (c)
  const float* conv_bias = nullptr;      // (c), may be null: not in x, but in running_mean
  double eps = 0;
  double momentum = 0;            // running = running + momentum (batch's - running)
  float* running_mean = nullptr;  // (c)
  float* running_var = nullptr;   // (c), unbiased
  T* y = nullptr;                 // (rows, c)
  float* centre = nullptr;        // (c) mean - origin
  float* invstd = nullptr;        // (c)
  uint16_t* passed = nullptr;     // (rows, c / kPassedWord), on a CPU: where ReLU passes z
  int64_t* batches = nullptr;     // becomes one more; may be null
  // On a GPU:
  uint8_t* mask = nullptr;  // (rows, c / v), v = batch_norm_vector(c, sizeof(T)): the k-th bit of a byte is 1
                            // where ReLU passes z of the k-th of its v channels
  float* workspace = nullptr;            // (batch_norm_workspace(rows, c))
  unsigned* arrived = nullptr;           // (batch_norm_counters(c)), zeros before and after
  unsigned* backward_arrived = nullptr;  // of the same size, becomes zeros
};

template <class T, class In = T>
struct BatchNormBackward {
  int64_t rows = 0;
  int64_t c = 0;
  const In* x = nullptr;  // (rows, c); this and the next three as in forward
  const float* weight = nullptr;
  const float* centre = nullptr;
  const float* invstd = nullptr;
  const T* dy = nullptr;             // (rows, c)
  const T* more_dy = nullptr;        // (rows, c), on a GPU, may be null: dy + more_dy, rounded to T, counts
  In* dx = nullptr;                  // (rows, c)
  T* dresidual = nullptr;            // (rows, c), may be null
  float* dweight = nullptr;          // (c)
  float* dbias = nullptr;            // (c)
  float* dresidual_bias = nullptr;   // (c), may be null: becomes dbias
  const uint16_t* passed = nullptr;  // on a CPU, as in forward: fewer bytes to read than y has
  // On a GPU:
  const uint8_t* mask = nullptr;  // as in forward
  float* workspace = nullptr;     // as in forward
  unsigned* arrived = nullptr;    // forward's backward_arrived, zeros before and after
};

}  // namespace lockstep
