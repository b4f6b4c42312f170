// In place of the CUDA kernel: computes the update on the CPU, queued on a fake GPU's stream.
#include <lockstep/parallel/optimizer/flat_sgd.h>

#include <lockstep/tests/support/fake_gpu/fake_stream.h>

namespace lockstep {
namespace {

template <class T>
void queue(const FlatSgdBuffers<T>& to, const FlatSgdOptions& options, const double* lr, const T* scale,
           CUstream_st* stream) {
  launch(*reinterpret_cast<testing::FakeStream*>(stream), [=] {
    const auto momentum = static_cast<T>(options.momentum);
    const auto weight_decay = static_cast<T>(options.weight_decay);
    for (int64_t i = 0; i < to.size; ++i) {
      T g = to.grads[i] * (scale ? *scale : T{1}) + weight_decay * to.params[i];
      if (to.momentum) {
        const T m = to.momentum[i] = momentum * to.momentum[i] + g;
        g = options.nesterov ? g + momentum * m : m;
      }
      to.params[i] -= static_cast<T>(*lr) * g;
      to.grads[i] = 0;
      if (to.bf16) to.bf16[i] = to_bf16(static_cast<float>(to.params[i]));
    }
  });
}

}  // namespace

void flat_sgd(const FlatSgdBuffers<float>& buffers, const FlatSgdOptions& options, const double* lr,
              const float* scale, CUstream_st* stream) {
  queue(buffers, options, lr, scale, stream);
}

void flat_sgd(const FlatSgdBuffers<double>& buffers, const FlatSgdOptions& options, const double* lr,
              const double* scale, CUstream_st* stream) {
  queue(buffers, options, lr, scale, stream);
}

}  // namespace lockstep
