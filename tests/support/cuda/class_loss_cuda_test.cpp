#include <lockstep/tests/support/cuda/class_loss_cases.h>

using namespace lockstep::testing;

TEST_CASE("the loss kernels on a GPU give torch's loss, gradients and counts in double", "[cuda]") {
  const torch::Device gpu("cuda:0");
  check_class_losses(gpu);
  check_hard_rows(gpu);
  check_class_loss_inputs(gpu);
  check_second_gradient(gpu);
}
