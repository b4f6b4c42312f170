// The CUDA kernels, emulated: class_loss_emulated.cpp.
#include <lockstep/tests/support/cuda/class_loss_cases.h>
#include <lockstep/tests/support/cuda_emulation/cuda_emulation.h>
#include <lockstep/tests/support/cuda_emulation/emulated_order.h>

using namespace lockstep;
using namespace lockstep::testing;

TEST_CASE("the loss kernels give torch's loss, gradients and counts in double") {
  emulated_order = GENERATE(ThreadOrder::kForward, ThreadOrder::kBackward);
  check_class_losses(torch::kCPU);
}

TEST_CASE("the loss kernels count equal logits and NaN as torch does") { check_hard_rows(torch::kCPU); }

TEST_CASE("the loss kernels take any strides, labels of any integer type, and no rows") {
  check_class_loss_inputs(torch::kCPU);
}

TEST_CASE("a classification's gradient can be differentiated again") { check_second_gradient(torch::kCPU); }

TEST_CASE("label smoothing, class weights, double and other shapes stay torch's") {
  const auto logits = some_logits(8, 10, 0, torch::kFloat32), labels = some_labels(8, 10);
  CHECK(class_loss_available(logits, labels));
  for (const auto& other : {logits.to(torch::kFloat64), logits.to(torch::kFloat16), logits.view({8, 5, 2}),
                            logits.slice(0, 1), logits.slice(1, 0, 0)}) {
    CHECK_FALSE(class_loss_available(other, labels));
  }
  CHECK_FALSE(class_loss_available(logits, labels.to(torch::kInt32)));
  const auto plain = expected_results(logits, labels).loss.item<double>();
  const auto loss_with = [&](const ClassificationOptions& options) {
    return classification(options).loss_sum(logits, labels).loss.item<double>();
  };
  // Half of the target spread over all ten classes: the mean of the log-probabilities, and the label's.
  const auto spread = -logits.to(torch::kFloat64).log_softmax(1).mean(1).sum().item<double>();
  CHECK(loss_with({.label_smoothing = .5}) == Approx(.5 * plain + .5 * spread).epsilon(1e-5));
  CHECK(loss_with({.class_weights = std::vector<double>(10, 2.)}) == Approx(2 * plain).epsilon(1e-5));
}

TEST_CASE("a label that is no class ends a kernel") {
  const auto logits = some_logits(8, 10, 0, torch::kFloat32);
  for (const int64_t label : {-1, 10, -100}) {
    auto labels = some_labels(8, 10);
    labels[5] = label;
    CHECK_THROWS_AS(class_loss(logits, labels), EmulationError);
  }
}
