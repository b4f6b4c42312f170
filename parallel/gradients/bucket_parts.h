// The parts of the flat buffers that ranks own, where the replicas share out the optimizer's state: each has
// a contiguous part of each bucket. The owner has the part's sums of gradients, updates its parameters and
// gives them to the others.
//
// No torch in here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <lockstep/parallel/gradients/buckets.h>
#include <lockstep/support/element_range.h>

namespace lockstep {

// Elements of the flat order that are one block. Buckets are cut into parts between blocks: so a part's
// length is a multiple of 64 bytes, but at the end of a bucket of one of FlatLayout's, and vectors end where
// those of a whole buffer do. The norm of gradients adds sums over blocks (gradient_norm.h).
inline constexpr int64_t kFlatBlock = 1 << 12;

using FlatPart = ElementRange;  // of the flat order

class BucketParts {
 public:
  BucketParts() = default;  // no buckets

  // Nothing is shared out: one bucket of all tensors, which each rank has as a whole.
  BucketParts(int64_t size, int tensors);

  // The ranks share out these buckets: nearly equal parts, in the order of ranks. A bucket of fewer blocks
  // than ranks leaves some of them without a part.
  BucketParts(std::vector<Bucket> buckets, int rank, int ranks);

  size_t count() const { return buckets_.size(); }
  const Bucket& bucket(size_t b) const { return buckets_[b]; }
  FlatPart all_of(size_t b) const { return {buckets_[b].begin, buckets_[b].end}; }

  // The part of a bucket that this rank owns.
  FlatPart own(size_t b) const;

  // The same, counted from the bucket's begin.
  ElementRange own_within(size_t b) const {
    return {bounds_[b][static_cast<size_t>(rank_)], bounds_[b][static_cast<size_t>(rank_) + 1]};
  }

  // (ranks + 1) elements from the bucket's begin: rank r owns those from bounds[r] to bounds[r + 1].
  const std::vector<int64_t>& bounds(size_t b) const { return bounds_[b]; }

  // Elements of all buckets.
  int64_t size() const { return buckets_.empty() ? 0 : buckets_.back().end; }

  // Returns true if this rank owns everything.
  bool whole() const { return ranks_ == 1; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::vector<int64_t>> bounds_;  // of each bucket
  int rank_ = 0;
  int ranks_ = 1;
};

}  // namespace lockstep
