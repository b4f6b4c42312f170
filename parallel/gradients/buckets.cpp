#include <lockstep/parallel/gradients/buckets.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr int64_t kAlignment = 16;  // elements

int64_t aligned(int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

FlatLayout flat_layout(std::span<const int64_t> numels) {
  FlatLayout layout{.offset = std::vector<int64_t>(numels.size())};
  for (size_t i = numels.size(); i-- > 0;) {
    layout.offset[i] = layout.size;
    layout.size += aligned(numels[i]);
  }
  return layout;
}

std::vector<Bucket> plan_buckets(std::span<const int64_t> numels, int64_t element_size,
                                 const BucketBounds& bounds) {
  const auto layout = flat_layout(numels);
  const auto bytes = [&](size_t i) { return aligned(numels[i]) * element_size; };
  // The last bucket takes the first registered tensors that fit, at least one.
  size_t tail = 0;  // tensors [0, tail) belong to the last bucket
  for (int64_t sum = 0; tail < numels.size() && (tail == 0 || sum + bytes(tail) <= bounds.last); ++tail) {
    sum += bytes(tail);
  }

  std::vector<Bucket> buckets;
  int64_t sum = 0;  // bytes in the current bucket
  for (size_t i = numels.size(); i-- > 0;) {
    const auto bound = buckets.size() <= 1 ? bounds.first : bounds.others;
    const bool opens = buckets.empty() || i + 1 == tail || (i >= tail && sum + bytes(i) > bound);
    if (opens) {
      buckets.push_back({.begin = layout.offset[i], .last = static_cast<int>(i)});
      sum = 0;
    }
    sum += bytes(i);
    buckets.back().first = static_cast<int>(i);
    buckets.back().end = layout.offset[i] + aligned(numels[i]);
  }
  return buckets;
}

ReadyBuckets::ReadyBuckets(std::vector<Bucket> buckets) : buckets_(std::move(buckets)) {
  const int tensors = buckets_.empty() ? 0 : buckets_.front().last + 1;
  bucket_of_.resize(static_cast<size_t>(tensors));
  for (size_t b = 0; b < buckets_.size(); ++b) {
    for (int i = buckets_[b].first; i <= buckets_[b].last; ++i) {
      bucket_of_[static_cast<size_t>(i)] = static_cast<int>(b);
    }
  }
  reset();
}

void ReadyBuckets::reset() {
  marked_.assign(bucket_of_.size(), false);
  waiting_for_.clear();
  for (const auto& bucket : buckets_) waiting_for_.push_back(bucket.last - bucket.first + 1);
  next_ = 0;
}

bool ReadyBuckets::mark(int tensor) {
  const auto i = static_cast<size_t>(tensor);
  if (marked_[i]) return false;
  marked_[i] = true;
  --waiting_for_[static_cast<size_t>(bucket_of_[i])];
  return true;
}

int ReadyBuckets::take_ready() {
  const bool all_taken = next_ == static_cast<int>(buckets_.size());
  if (all_taken || waiting_for_[static_cast<size_t>(next_)] > 0) return -1;
  return next_++;
}

bool ReadyBuckets::begun() const { return missing().size() < marked_.size(); }

std::vector<int> ReadyBuckets::missing() const {
  std::vector<int> result;
  for (size_t i = 0; i < marked_.size(); ++i) {
    if (!marked_[i]) result.push_back(static_cast<int>(i));
  }
  return result;
}

}  // namespace lockstep
