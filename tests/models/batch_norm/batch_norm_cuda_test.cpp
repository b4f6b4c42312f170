#include <lockstep/tests/models/batch_norm/batch_norm_cases.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>

using namespace lockstep::testing;

namespace {

const torch::Device kGpu(torch::kCUDA, 0);

}  // namespace

TEST_CASE("fused batch normalisation on a GPU is torch's in double", "[cuda]") { check_batch_norms(kGpu); }

TEST_CASE("large means, constant channels and NaN on a GPU", "[cuda]") { check_hard_channels(kGpu); }

TEST_CASE("tensors of any layout and alignment on a GPU", "[cuda]") { check_layouts(kGpu); }

TEST_CASE("a second run on a GPU gives the same bits", "[cuda]") { check_repeatable(kGpu); }

TEST_CASE("ResNet-18 on a GPU trains with fused kernels as with torch's layers", "[cuda]") {
  check_fused_resnet18(kGpu);
}
