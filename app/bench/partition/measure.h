// Measures time and cost of all schemes that partition one network over one list of devices, and checks that
// they compute the same gradients.
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

inline constexpr double kPartitionRate = .1;  // learning rate

struct PartitionSettings {
  int64_t batch_size = 256;
  int micro_batches = 4;
  int repeat = 5;  // repetitions; each measures every scheme
  uint64_t seed = 0;
};

// Measures in float. Asks stop() before every repetition but the first, and ends when it returns true.
PartitionFigures measure_partition(Mesh& mesh, const LayeredNetwork& network,
                                   const PartitionSettings& settings, const std::function<bool()>& stop);

struct GradientCheck {
  std::string name;
  bool ok = false;
  std::string detail;
};

// Compares every copy of the network's gradients with `expected`. The detail names the largest difference.
GradientCheck check_against(const std::string& name, const std::vector<Params>& copies,
                            const Params& expected);

// Takes one step of every scheme in double on a few rows and compares its gradients with those of the whole
// network on one device. starts: the first layers of the pipeline's stages.
std::vector<GradientCheck> check_gradients(Mesh& mesh, const LayeredNetwork& network,
                                           const std::vector<size_t>& starts,
                                           const PartitionSettings& settings);

}  // namespace lockstep
