#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/models/layers/batch_norm/batch_norm_cases.h>
#include <lockstep/tests/models/resnet18_fused_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// GPU 0, in fp32. By default torch's convolutions on GPUs use TF32: their error is so much larger that it
// would hide a wrong batch normalisation.
torch::Device gpu() {
  set_arithmetic(Precision::kFp32, /*deterministic=*/false);
  return {torch::kCUDA, 0};
}

}  // namespace

TEST_CASE("fused batch normalisation on a GPU is torch's in double", "[cuda]") { check_batch_norms(gpu()); }

TEST_CASE("large means, constant channels and NaN on a GPU", "[cuda]") { check_hard_channels(gpu()); }

TEST_CASE("tensors of any layout and alignment on a GPU", "[cuda]") { check_layouts(gpu()); }

TEST_CASE("a result for two uses on a GPU takes both gradients", "[cuda]") { check_two_uses(gpu()); }

TEST_CASE("a second run on a GPU gives the same bits", "[cuda]") { check_repeatable(gpu()); }

TEST_CASE("ResNet-18 on a GPU trains with fused kernels as with torch's layers", "[cuda]") {
  check_fused_resnet18(gpu());
}
