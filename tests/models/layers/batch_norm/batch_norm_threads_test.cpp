// The kernels with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/models/layers/batch_norm/batch_norm_backward_kernel.h>
#include <lockstep/models/layers/batch_norm/batch_norm_forward_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs forward and backward of one layer. Returns all results in one list.
template <class Launch>
std::vector<float> results(const Launch& launch, int64_t rows, int64_t c) {
  const auto size = static_cast<size_t>(rows * c);
  const auto channels = static_cast<size_t>(c);
  std::vector<float> x(size), residual(size), dy(size), y(size), dx(size), dresidual(size);
  for (size_t i = 0; i < size; ++i) {
    x[i] = static_cast<float>(i * 37 % 101);
    residual[i] = static_cast<float>(i * 41 % 7) - 3;
    dy[i] = static_cast<float>(i * 29 % 11) - 5;
  }
  std::vector<float> weight(channels, 2), bias(channels, -1), mean(channels), var(channels), centre(channels),
      invstd(channels), dweight(channels), dbias(channels);
  std::vector<float> workspace(static_cast<size_t>(batch_norm_workspace(rows, c)));
  batch_norm_forward_with(
      launch, BatchNormForward<float>{rows, c, x.data(), residual.data(), weight.data(), bias.data(),
                                      bias.data(), 1e-5, .1, mean.data(), var.data(), y.data(), centre.data(),
                                      invstd.data(), workspace.data()});
  batch_norm_backward_with(
      launch, BatchNormBackward<float>{rows, c, x.data(), y.data(), weight.data(), centre.data(),
                                       invstd.data(), dy.data(), dx.data(), dresidual.data(), dweight.data(),
                                       dbias.data(), workspace.data()});
  for (const auto* more : {&mean, &var, &dx, &dresidual, &dweight, &dbias})
    y.insert(y.end(), more->begin(), more->end());
  return y;
}

}  // namespace

TEST_CASE("threads of a batch normalisation have no data race and give the same result") {
  const int64_t c = GENERATE(8, 5);
  CHECK(results(ThreadLaunch{}, 300, c) == results(FibreLaunch{}, 300, c));
}
