// The experiments of `bench overlap`: each measures, prints a table and says what was seen.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/copy.h>
#include <lockstep/app/bench/overlap/run.h>

namespace lockstep {

// `run` on each device alone, and on all at once.
void compare_devices(OverlapRun& run, OverlapDevices& devices);

// Of one way to compute and copy, turn by turn, in seconds. compute and copy are those of the same turn's way
// that does one after the other with the same kind of memory.
struct CopyTimes {
  std::vector<double> compute, copy, together;
};

// Takes all turns of all ways, after a check (in which every device's slots are counted that are wrong) as
// the warm-up.
std::vector<CopyTimes> measure_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                                      const std::vector<CopyWay>& ways, int times);

// The first device computes, and its results go to the host.
void compare_copies(OverlapRun& run, OverlapDevices& devices);

// All devices compute, and all results go to the host. Returns the hidden part of the overlapped way.
std::optional<double> compare_all_at_once(OverlapRun& run, OverlapDevices& devices);

// From the first device's memory to the second's, and back.
void compare_links(OverlapRun& run, OverlapDevices& devices);

// What a hidden part means, in words. Beyond 0 and 1 it says how far a turn's times scatter, or that copies
// hold up the products.
std::string reach_of(double hidden);

// What the copies of these devices are, in `#` lines.
void explain_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices, int times);

// One turn of it, as events of this trace.
void trace_turn(Trace& trace, const OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                const CopyWay& way, int times);

// What each device's product is, by plain torch: one (size, size) float a device, on the host.
std::vector<torch::Tensor> expected_products(const std::vector<OverlapDevice*>& devices);

}  // namespace lockstep
