// The experiments of `bench overlap`. Each measures, prints a table and reports findings.
#pragma once

#include <string>
#include <vector>

#include <lockstep/app/bench/overlap/queues/copy.h>
#include <lockstep/app/bench/overlap/run.h>

namespace lockstep {

// Compares the matmuls of each device alone with all devices at once.
void compare_devices(OverlapRun& run, OverlapDevices& devices);

// The seconds of one way to compute and copy, by repetition. compute and copy are those of kAfterAll with the
// same kind of memory in the same repetition.
struct CopyTimes {
  std::vector<double> compute, copy, together;
};

// Checks the slots of every device, which is also the warm-up, then measures all ways in all repetitions.
std::vector<CopyTimes> measure_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                                      const std::vector<CopyWay>& ways, int times);

// The first device computes and copies its results to the host.
void compare_copies(OverlapRun& run, OverlapDevices& devices);

// All devices compute and copy their results to the host. Returns the hidden part of the overlapped way.
std::optional<double> compare_all_at_once(OverlapRun& run, OverlapDevices& devices);

// Copies results from the first device to the second, and back.
void compare_links(OverlapRun& run, OverlapDevices& devices);

// Puts a hidden part into words. Values below 0 or above 1 mean that times scatter, or that copies delay the
// matmuls.
std::string reach_of(double hidden);

// Explains in `#` lines how these devices copy.
void explain_copies(OverlapRun& run, const std::vector<OverlapDevice*>& devices, int times);

// Computes and copies once and adds the events to the trace.
void trace_copies(Trace& trace, const OverlapRun& run, const std::vector<OverlapDevice*>& devices,
                  const CopyWay& way, int times);

// The result of each device's matmul as plain torch computes it: one (size, size) float per device, on the
// host.
std::vector<torch::Tensor> expected_results(const std::vector<OverlapDevice*>& devices);

}  // namespace lockstep
