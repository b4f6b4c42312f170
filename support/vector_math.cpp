#include <lockstep/support/vector_math.h>

#include <ATen/ops/ones.h>
#include <ATen/ops/sqrt.h>

namespace lockstep {

void choose_vector_kernels() {
  static const auto chosen = at::sqrt(at::ones({1}, at::kFloat));
  static_cast<void>(chosen);
}

}  // namespace lockstep
