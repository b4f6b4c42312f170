#include <lockstep/parallel/gradients/bucket_hook.h>

#include <fmt/format.h>

#include <lockstep/support/error.h>

namespace lockstep {

BucketHook bf16_hook() {
  return [](Endpoint& endpoint, const GradientBucket& bucket) {
    const auto& gradients = bucket.gradients;
    if (gradients.scalar_type() != torch::kFloat) {
      throw UsageError(fmt::format("bf16_hook() rounds float gradients, but these are {}",
                                   toString(gradients.scalar_type())),
                       "leave the hook out");
    }
    if (endpoint.world_size() == 1) return Work();
    const auto rounded = gradients.to(torch::kBFloat16);
    return endpoint.allreduce_sum(rounded).then([gradients, rounded] { gradients.copy_(rounded); });
  };
}

}  // namespace lockstep
