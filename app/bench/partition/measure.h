// Times and costs of the ways to partition one network over one list of devices, and whether all of them
// compute the same.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/app/bench/partition/findings.h>
#include <lockstep/app/bench/partition/mesh.h>
#include <lockstep/app/bench/partition/network.h>
#include <lockstep/support/types.h>

namespace lockstep {

inline constexpr double kPartitionRate = .1;  // of the updates

struct PartitionSettings {
  int64_t batch_size = 256;
  int micro_batches = 4;
  int repeat = 5;  // turns, in each of which all ways are measured
  uint64_t seed = 0;
};

// In float. stop() is asked before every turn but the first; turns end when it says so.
PartitionFigures measure_partition(Mesh& mesh, const LayeredNetwork& network,
                                   const PartitionSettings& settings, const std::function<bool()>& stop);

struct GradientCheck {
  std::string name;
  bool ok = false;
  std::string detail;
};

// Every copy of the network's gradients against these; the detail has both values, of the worst copy.
GradientCheck check_against(const std::string& name, const std::vector<Params>& copies,
                            const Params& expected);

// Of every way, one step in double on a few rows: its gradients against those of the whole network on one
// device. starts: of the stages.
std::vector<GradientCheck> check_gradients(Mesh& mesh, const LayeredNetwork& network,
                                           const std::vector<size_t>& starts,
                                           const PartitionSettings& settings);

}  // namespace lockstep
