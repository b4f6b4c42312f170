#include <lockstep/tests/data/kernels/gather_images_cases.h>

using namespace lockstep::testing;

TEST_CASE("images are gathered on a GPU as torch does it", "[cuda]") {
  check_gathers(torch::Device("cuda:0"));
}

TEST_CASE("every pixel value is divided exactly on a GPU", "[cuda]") {
  check_every_value(torch::Device("cuda:0"));
}
