// The kernels with one thread per CUDA thread, for ThreadSanitizer.
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>

#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/support/cuda/class_loss_kernel.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// Runs both passes. Returns all results in one list.
template <class Launch>
std::vector<float> results_of_class_loss(const Launch& launch, int64_t rows, int64_t classes) {
  std::vector<float> logits(static_cast<size_t>(rows * classes)), dlogits(logits.size());
  std::vector<int64_t> labels(static_cast<size_t>(rows)), counts(2);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 10;
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i * 7) % classes;
  std::vector<float> largest(labels.size()), inverse(labels.size());
  std::vector<double> workspace(static_cast<size_t>(class_loss_workspace(rows, classes)));
  float loss = 0;
  const float dloss = .5;
  class_loss_forward_with(launch,
                          ClassLossForward<float>{rows, classes, logits.data(), labels.data(), largest.data(),
                                                  inverse.data(), &loss, counts.data(), workspace.data()});
  class_loss_backward_with(
      launch, ClassLossBackward<float>{rows, classes, logits.data(), labels.data(), largest.data(),
                                       inverse.data(), &dloss, dlogits.data()});
  dlogits.insert(dlogits.end(), {loss, static_cast<float>(counts[0]), static_cast<float>(counts[1])});
  return dlogits;
}

}  // namespace

TEST_CASE("threads of the loss kernels have no data race and give the same result") {
  const int64_t rows = GENERATE(20, 600);  // of one block, of ten
  CHECK((class_loss_workspace(rows, 40) > 0) == (rows == 600));
  CHECK(results_of_class_loss(ThreadLaunch{}, rows, 40) == results_of_class_loss(FibreLaunch{}, rows, 40));
}
