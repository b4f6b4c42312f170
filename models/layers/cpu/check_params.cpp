#include <lockstep/models/layers/cpu/check_params.h>

namespace lockstep {

void check_params(torch::ScalarType type, const ShapedTensors& params) {
  for (const auto& [tensor, shape] : params) {
    TORCH_CHECK(
        tensor.sizes() == torch::IntArrayRef(shape) && tensor.scalar_type() == type && tensor.is_cpu(),
        "lockstep's kernels take here ", type, " of ", torch::IntArrayRef(shape), " on a CPU, got ",
        tensor.scalar_type(), " of ", tensor.sizes(), " on ", tensor.device());
  }
}

}  // namespace lockstep
