// The kernel of flat_sgd.h. support/cuda/kernel.h explains how such headers are compiled.
#pragma once

#include <lockstep/parallel/optimizer/flat_sgd.h>
#include <lockstep/support/cuda/kernel.h>
#include <lockstep/support/error.h>

namespace lockstep {

template <class T>
struct FlatSgdStep {
  FlatSgdBuffers<T> buffers;
  T momentum;
  T weight_decay;
  bool nesterov;
  const double* lr;
  const T* scale;
};

// Updates N consecutive elements that begin at `first`.
template <int N, class T>
__device__ void flat_sgd_update(const FlatSgdStep<T>& step, int64_t first) {
  const auto& to = step.buffers;
  const T lr = static_cast<T>(*step.lr);
  const T scale = step.scale != nullptr ? *step.scale : T{1};
  auto& params = *reinterpret_cast<Vector<T, N>*>(to.params + first);
  auto& grads = *reinterpret_cast<Vector<T, N>*>(to.grads + first);
  auto* momentum = to.momentum != nullptr ? reinterpret_cast<Vector<T, N>*>(to.momentum + first) : nullptr;

  Vector<T, N> p = params;
  Vector<T, N> g = grads;
  for (int k = 0; k < N; ++k) g.values[k] *= scale;
  if (step.weight_decay != 0) {  // 0 times an infinite p would be NaN
    for (int k = 0; k < N; ++k) g.values[k] += step.weight_decay * p.values[k];
  }
  if (momentum != nullptr) {
    Vector<T, N> m = *momentum;
    for (int k = 0; k < N; ++k) {
      m.values[k] = step.momentum * m.values[k] + g.values[k];
      g.values[k] = step.nesterov ? g.values[k] + step.momentum * m.values[k] : m.values[k];
    }
    *momentum = m;
  }
  for (int k = 0; k < N; ++k) p.values[k] -= lr * g.values[k];
  params = p;
  grads = Vector<T, N>{};
  if (to.bf16 == nullptr) return;
  Vector<Bf16, N> bf16;
  for (int k = 0; k < N; ++k) bf16.values[k] = to_bf16(static_cast<float>(p.values[k]));
  *reinterpret_cast<Vector<Bf16, N>*>(to.bf16 + first) = bf16;
}

// Each thread updates N consecutive elements; the last size % N elements have one thread each.
template <class T, int N>
__global__ void flat_sgd_kernel(FlatSgdStep<T> step) {
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t whole = step.buffers.size / N;
  if (thread < whole) {
    flat_sgd_update<N>(step, thread * N);
  } else if (thread - whole < step.buffers.size - whole * N) {
    flat_sgd_update<1>(step, whole * N + thread - whole);
  }
}

inline void check_flat_sgd(const FlatSgdOptions& options, bool momentum_buffer) {
  if ((options.momentum != 0) != momentum_buffer) {
    throw UsageError(momentum_buffer ? "SGD without momentum takes no momentum buffer"
                                     : "SGD with momentum needs a momentum buffer");
  }
  if (options.nesterov && !momentum_buffer) throw UsageError("Nesterov's SGD needs momentum");
}

template <class Launch, class T>
void flat_sgd_with(const Launch& launch, const FlatSgdBuffers<T>& buffers, const FlatSgdOptions& options,
                   const double* lr, const T* scale) {
  constexpr int kThreads = 256;
  constexpr int kWide = kVectorBytes / sizeof(T);
  check_flat_sgd(options, buffers.momentum != nullptr);
  if (buffers.size == 0) return;
  const bool aligned = is_aligned(buffers.params, kVectorBytes) && is_aligned(buffers.grads, kVectorBytes) &&
                       is_aligned(buffers.momentum, kVectorBytes) &&
                       is_aligned(buffers.bf16, kWide * static_cast<int64_t>(sizeof(Bf16)));
  const int64_t n = aligned ? kWide : 1;
  const int64_t threads = buffers.size / n + buffers.size % n;
  const dim3 grid{static_cast<unsigned>(ceil_div(threads, kThreads)), 1, 1};
  const FlatSgdStep<T> step{
      buffers, static_cast<T>(options.momentum), static_cast<T>(options.weight_decay), options.nesterov, lr,
      scale};
  launch(aligned ? flat_sgd_kernel<T, kWide> : flat_sgd_kernel<T, 1>, grid, dim3{kThreads, 1, 1}, step);
}

}  // namespace lockstep
