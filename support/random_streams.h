// The random streams of lockstep: the first key of each SplitMix64, after the seed. No two uses have one
// number, so that none repeats the draws of another.
#pragma once

#include <cstdint>

namespace lockstep {

enum RandomStream : uint64_t {
  // 0, 1 and 2: images of data/synthetic.cpp; batch_order() has the epoch as its only key
  kReplicaStream = 3,       // {3, step, rank}: parallel/replica_random.cpp
  kRowStream = 4,           // {4, epoch, row}: rows of torch::data, data/row_reads.cpp
  kAugmentationStream = 5,  // {5, epoch, row}: data/images/augmentation.h
  kSampleStream = 6,        // {6, rows}: the rows that measure() looks at, data/images/normalize.h
  kHeldOutStream = 7,       // {7, row}: data/held_out.h
};

}  // namespace lockstep
