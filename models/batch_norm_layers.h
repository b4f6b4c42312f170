// What a fused batch normalisation of a training step is given and makes: see batch_norm_kernels.h. Pointers
// are to memory of the device that computes. No other include: sources for one processor's capability read
// this, too.
#pragma once

#include <stdint.h>

namespace lockstep {

// Numbers whose bits are one of `passed`, the first of them in the lowest.
inline constexpr int kPassedWord = 16;

// T, of activations, is float or Bf16; so is In, of what is normalised and its gradient, if those are other.
template <class T, class In = T>
struct BatchNormForward {
  int64_t rows = 0;  // at least 2
  int64_t c = 0;
  const In* x = nullptr;             // (rows, c)
  const T* residual = nullptr;       // (rows, c), may be null
  const float* weight = nullptr;     // (c)
  const float* bias = nullptr;       // (c)
  const float* conv_bias = nullptr;  // (c), may be null: what x lacks, so that running_mean can count it
  double eps = 0;
  double momentum = 0;            // running = running + momentum (batch's - running)
  float* running_mean = nullptr;  // (c)
  float* running_var = nullptr;   // (c), unbiased
  T* y = nullptr;                 // (rows, c)
  float* centre = nullptr;        // (c) mean - origin
  float* invstd = nullptr;        // (c)
  float* workspace = nullptr;     // (batch_norm_workspace(rows, c)), on a GPU
  uint16_t* passed = nullptr;     // (rows, c / kPassedWord), on a processor: what ReLU lets pass
};

template <class T, class In = T>
struct BatchNormBackward {
  int64_t rows = 0;
  int64_t c = 0;
  const In* x = nullptr;  // these as forward had and made them
  const T* y = nullptr;   // on a GPU
  const float* weight = nullptr;
  const float* centre = nullptr;
  const float* invstd = nullptr;
  const T* dy = nullptr;             // (rows, c)
  In* dx = nullptr;                  // (rows, c)
  T* dresidual = nullptr;            // (rows, c), may be null
  float* dweight = nullptr;          // (c)
  float* dbias = nullptr;            // (c)
  float* workspace = nullptr;        // (batch_norm_workspace(rows, c)), on a GPU
  const uint16_t* passed = nullptr;  // on a processor, where bits are less to read than y
};

}  // namespace lockstep
