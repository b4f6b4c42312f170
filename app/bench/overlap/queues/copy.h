// The ways in which `bench overlap` computes results and copies them to the host, and their times.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/device.h>

namespace lockstep {

enum class CopyOrder {
  kAfterAll,  // all matmuls, then all copies
  kBehind,    // each copy right after its matmul, in the same queue
  kBeside,    // copies in a queue of their own, during the next matmuls
};

struct CopyWay {
  std::string name;
  CopyOrder order = CopyOrder::kAfterAll;
  HostMemory memory = HostMemory::kPageable;
};

// For each kind of memory kAfterAll comes first.
std::vector<CopyWay> copy_ways(bool gpus);

struct CopySeconds {
  double compute = 0;  // only known for kAfterAll; otherwise 0
  double copy = 0;
  double together = 0;
};

// Each device computes `iterations` matmuls and copies each result `times` times, all devices at once. trace:
// gets an event for each; may be null.
CopySeconds compute_and_copy(const OverlapDevices& devices, const CopyWay& way, int64_t iterations, int times,
                             Trace* trace = nullptr);

// Returns how often each result must be copied so that the copies take at least a quarter of the matmuls'
// time (measured; the aim is a third). 1 on a GPU, whose link is slow enough.
int copies_per_result(const std::shared_ptr<OverlapDevice>& device);

// Fills everything with NaN, uses every slot once, and returns the number of slots that are wrong, such as
// results that were copied before they were computed.
int64_t wrong_slots(const OverlapDevices& devices, const CopyWay& way);

}  // namespace lockstep
