#include <lockstep/parallel/gradients/bucket_parts.h>

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::vector<int64_t> bounds_of(const Bucket& bucket, int ranks) {
  const int64_t size = bucket.end - bucket.begin;
  std::vector<int64_t> bounds = {0};
  for (int64_t rank = 1; rank < ranks; ++rank) {
    const int64_t even = bucket.begin + size * rank / ranks;
    const int64_t between_blocks = (even + kFlatBlock / 2) / kFlatBlock * kFlatBlock;
    bounds.push_back(std::clamp(between_blocks, bucket.begin, bucket.end) - bucket.begin);
  }
  bounds.push_back(size);
  return bounds;
}

}  // namespace

BucketParts::BucketParts(int64_t size, int tensors)
    : BucketParts({{.begin = 0, .end = size, .first = 0, .last = tensors - 1}}, 0, 1) {}

BucketParts::BucketParts(std::vector<Bucket> buckets, int rank, int ranks)
    : buckets_(std::move(buckets)), rank_(rank), ranks_(ranks) {
  for (const auto& bucket : buckets_) bounds_.push_back(bounds_of(bucket, ranks));
}

FlatPart BucketParts::own(size_t b) const {
  const auto within = own_within(b);
  return {buckets_[b].begin + within.begin, buckets_[b].begin + within.end};
}

}  // namespace lockstep
