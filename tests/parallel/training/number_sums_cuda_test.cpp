#include <lockstep/tests/parallel/training/number_sums_cases.h>

using namespace lockstep::testing;

TEST_CASE("the kernel that sums losses on a GPU adds in double", "[cuda]") {
  check_number_sums(torch::Device("cuda:0"));
}
