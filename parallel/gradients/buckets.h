// The layout of all gradients in one flat buffer, its buckets, and which bucket can be reduced next.
//
// Backward computes gradients roughly in reverse order of the parameters' registration. The buffer has the
// same reverse order, so that its first bucket is complete first. (After PyTorch DDP: S. Li et al.,
// "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, section 3.2.)
//
// No torch in here, so that ThreadSanitizer can watch it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

// Offsets are in elements. Tensors begin at multiples of 16 elements (64 bytes of float: a cache line,
// aligned for vector loads). The gaps between them stay zero.
struct FlatLayout {
  std::vector<int64_t> offset;  // of tensor i, in the order of registration; the last one lies first
  int64_t size = 0;             // elements in all, gaps included
};

// Returns the layout of tensors with so many elements.
FlatLayout flat_layout(std::span<const int64_t> numels);

// A part of the flat buffer that one collective reduces: whole tensors, each with the gap behind it.
struct Bucket {
  int64_t begin = 0;  // elements, [begin, end)
  int64_t end = 0;
  int first = 0;  // tensors [first, last], in the order of registration
  int last = 0;
};

// Upper bounds in bytes. A tensor larger than the bound gets its own bucket; no tensor is cut.
struct BucketBounds {
  int64_t first = 1 << 20;  // small, so that the first reduction starts early
  int64_t others = 25 << 20;
  int64_t last = 1 << 20;  // small, since no computation hides the last reduction
};

// Returns buckets that cover the buffer of flat_layout(), in the order in which they are reduced.
std::vector<Bucket> plan_buckets(std::span<const int64_t> numels, int64_t element_size,
                                 const BucketBounds& bounds);

// Counts the gradients that are complete in one backward pass. take_ready() returns buckets in a fixed
// order, so that all replicas reduce them in the same order.
class ReadyBuckets {
 public:
  explicit ReadyBuckets(std::vector<Bucket> buckets);

  const std::vector<Bucket>& buckets() const { return buckets_; }

  // Marks a tensor as complete. Returns false if it was marked already since the last reset().
  bool mark(int tensor);

  // Returns the next bucket in order if all its tensors are marked, else -1. Returns each bucket once.
  int take_ready();

  // Returns true if a tensor was marked since the last reset().
  bool begun() const;

  // Returns the tensors that are not marked, ascending.
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
