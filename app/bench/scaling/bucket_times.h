// When backward has filled each bucket of gradients, measured.
#pragma once

#include <cstdint>

#include <lockstep/app/bench/scaling/model.h>
#include <lockstep/app/train/plan/plan.h>

namespace lockstep {

// Takes a few steps of so many rows on the plan's first device, as a replica among several whose sums take no
// time. The times when buckets are ready are right on a CPU alone: a GPU computes later than the host posts.
// The plan has no --invariant.
BucketTimes measure_bucket_times(const TrainPlan& plan, int64_t rows);

}  // namespace lockstep
