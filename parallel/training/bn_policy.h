// Which batch-norm statistics a training run's model has when it is evaluated and saved.
#pragma once

#include <lockstep/support/choices.h>

namespace lockstep {

// In training each replica normalises with the statistics of its own rows and keeps its own running averages,
// but for kSync.
enum class BnPolicy {
  kRoot,     // rank 0's
  kAverage,  // the mean over the replicas, weighted by the rows that each has trained on
  kSync,     // statistics of the whole batch, in training too: the same on every replica
};

inline constexpr Choice<BnPolicy> kBnPolicyNames[] = {
    {"root", BnPolicy::kRoot}, {"average", BnPolicy::kAverage}, {"sync", BnPolicy::kSync}};

}  // namespace lockstep
