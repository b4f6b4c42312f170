// Also largest_bucket() and largest_neighbours() of gradient_sync.h.
#include <lockstep/parallel/gradients/bucket_sizes.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kSmallBucket = 1 << 20;  // bytes

}  // namespace

BucketBounds bucket_bounds(const GradientSyncOptions& options) {
  if (options.mode == SyncMode::kParameterwise) return {.first = 0, .others = 0, .last = 0};
  const auto small = std::min(kSmallBucket, options.bucket_bytes);
  return {.first = small, .others = options.bucket_bytes, .last = small};
}

int64_t largest_bucket(std::span<const int64_t> numels, int64_t element_size,
                       const GradientSyncOptions& options) {
  int64_t largest = 0;
  for (const auto& bucket : plan_buckets(numels, element_size, bucket_bounds(options))) {
    largest = std::max(largest, bucket.end - bucket.begin);
  }
  return largest;
}

int64_t largest_neighbours(std::span<const int64_t> numels, int64_t element_size,
                           const GradientSyncOptions& options) {
  int64_t largest = 0, before = 0;
  for (const auto& bucket : plan_buckets(numels, element_size, bucket_bounds(options))) {
    largest = std::max(largest, bucket.end - before);
    before = bucket.begin;
  }
  return largest;
}

}  // namespace lockstep
