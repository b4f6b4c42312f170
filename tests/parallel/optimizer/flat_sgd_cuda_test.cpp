#include <lockstep/tests/parallel/optimizer/flat_sgd_cases.h>

using namespace lockstep::testing;

TEST_CASE("the SGD kernel on a GPU agrees with torch", "[cuda]") {
  check_flat_sgd<float>(torch::Device("cuda:0"));
  check_flat_sgd<double>(torch::Device("cuda:0"));
}
