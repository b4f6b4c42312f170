// The passes of batch_norm_kernels.h over an activation, on a CPU. Memory is the host's, c is a multiple of
// 16, and outputs are aligned to 64 bytes. Threads share a pass by ranges of rows. Needs no torch: see
// lanes.h.
#pragma once

#include <lockstep/models/layers/batch_norm/batch_norm_layers.h>
#include <lockstep/support/bf16_type.h>

namespace lockstep {

template <class T, class In = T>
struct BatchNormPasses {
  // Adds x - origin and its square to sums (2, c). scratch: (2, c).
  void (*statistics)(const BatchNormForward<T, In>& layer, int64_t first, int64_t last, float* scratch,
                     double* sums);

  // y = relu((x - origin) scale + shift + residual), and `passed`.
  void (*apply)(const BatchNormForward<T, In>& layer, const float* scale, const float* shift, int64_t first,
                int64_t last);

  // Adds dz and dz (x - origin) to sums (2, c), where dz is dy if ReLU passed z, else 0.
  void (*gradient_sums)(const BatchNormBackward<T, In>& layer, int64_t first, int64_t last, float* scratch,
                        double* sums);

  // dx = of_dz dz + of_x (x - origin) + constant, dresidual = dz.
  void (*input_gradient)(const BatchNormBackward<T, In>& layer, const float* of_dz, const float* of_x,
                         const float* constant, int64_t first, int64_t last);
};

}  // namespace lockstep
