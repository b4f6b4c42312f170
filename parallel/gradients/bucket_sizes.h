// How GradientSync's options cut gradients into buckets.
#pragma once

#include <lockstep/parallel/gradient_sync.h>
#include <lockstep/parallel/gradients/buckets.h>

namespace lockstep {

// The bounds for plan_buckets().
BucketBounds bucket_bounds(const GradientSyncOptions& options);

}  // namespace lockstep
