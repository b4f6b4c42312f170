// augment_images() for a build without CUDA.
#include <lockstep/data/kernels/augment_images.h>
#include <lockstep/support/error.h>

namespace lockstep {
namespace {

constexpr auto kNoCuda = "images cannot be augmented by a CUDA kernel, this lockstep was built without CUDA";

}  // namespace

void augment_images(const AugmentedRows&, float*, CUstream_st*) { throw DeviceError(kNoCuda); }
void augment_images(const AugmentedRows&, uint8_t*, CUstream_st*) { throw DeviceError(kNoCuda); }

}  // namespace lockstep
