// The ways of `bench overlap` to compute results and copy them to the host, and what a turn of each takes.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/device.h>

namespace lockstep {

enum class CopyOrder {
  kAfterAll,  // all products, then all copies
  kBehind,    // each copy in the products' own queue, right behind its product
  kBeside,    // copies in a queue of their own, while the next products are computed
};

struct CopyWay {
  std::string name;
  CopyOrder order = CopyOrder::kAfterAll;
  HostMemory memory = HostMemory::kPageable;
};

// The first is kAfterAll, and of each kind of memory kAfterAll comes first.
std::vector<CopyWay> copy_ways(bool gpus);

struct CopyTurn {
  double compute = 0;  // seconds; 0 where it is not alone: of kAfterAll only
  double copy = 0;
  double together = 0;
};

// Each device computes `iterations` products and copies each result so many times, all devices at once.
CopyTurn take_copy_turn(const std::vector<OverlapDevice*>& devices, const CopyWay& way, int64_t iterations,
                        int times);

// How often each result must be copied for all copies to take at least a quarter of the products' time
// (measured; a third is aimed at); 1 on a GPU, whose link is slow enough.
int copies_a_result(OverlapDevice& device);

// Fills everything with NaN, takes a turn that uses every slot just once, and counts the slots that are wrong
// then: what was copied before it was computed. expected: one product a device.
int64_t wrong_slots(const std::vector<OverlapDevice*>& devices, const CopyWay& way,
                    const std::vector<torch::Tensor>& expected);

// All queues of these devices; what they do is traced from now on (null: not).
std::vector<WorkQueue*> queues_of(const std::vector<OverlapDevice*>& devices);
void trace_to(Trace* trace, const std::vector<OverlapDevice*>& devices);

}  // namespace lockstep
