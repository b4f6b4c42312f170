// Where each gradient lies in one flat buffer, how that is cut into buckets, and which bucket may be reduced.
//
// Backward makes gradients roughly in the reverse of the order in which the parameters were registered, so
// the buffer is laid out in that order: what is ready first lies first. (After PyTorch DDP: S. Li et al.,
// "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.)
//
// No torch in here, so that ThreadSanitizer can watch it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Offsets are in elements. Tensors begin at multiples of 16 elements (64 bytes of float: a cache line, and
// what vector loads like); the gaps belong to nobody and stay zero.
struct FlatLayout {
  std::vector<int64_t> offset;  // of tensor i, in the order of registration; the last one lies first
  int64_t size = 0;             // elements in all, gaps included
};

FlatLayout flat_layout(std::span<const int64_t> numels);

// A piece of the flat buffer that is reduced as one: whole tensors, with the gaps behind them.
struct Bucket {
  int64_t begin = 0;  // elements, [begin, end)
  int64_t end = 0;
  int first = 0;  // tensors [first, last], in the order of registration
  int last = 0;
};

// Upper bounds in bytes; a tensor larger than its bucket's bound is a bucket by itself, none is ever cut.
struct BucketBounds {
  int64_t first = 1 << 20;  // a small one, so that the first reduction starts early
  int64_t others = 25 << 20;
  int64_t last = 1 << 20;  // a small one, since nothing is left to hide the last reduction behind
};

// In the order in which they are reduced: together they cover the buffer.
std::vector<Bucket> plan_buckets(std::span<const int64_t> numels, const FlatLayout& layout,
                                 int64_t element_size, const BucketBounds& bounds);

// Keeps count of the gradients that have arrived during one backward pass. All replicas start the same
// buckets in the same order, whatever the order in which their gradients arrive.
class BucketProgress {
 public:
  explicit BucketProgress(std::vector<Bucket> buckets);

  const std::vector<Bucket>& buckets() const { return buckets_; }

  // False if this tensor had been marked already since the last reset().
  bool mark(int tensor);

  // The next bucket in order if all its tensors are marked, else -1. It is not returned again.
  int take_ready();

  // Tensors that are not marked, ascending.
  std::vector<int> missing() const;

  void reset();

 private:
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;    // tensor -> bucket
  std::vector<bool> marked_;      // tensor
  std::vector<int> waiting_for_;  // bucket -> tensors not marked yet
  int next_ = 0;                  // bucket
};

}  // namespace lockstep
