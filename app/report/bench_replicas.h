// The replicas that a benchmark measures: of this process, or of all processes of a world.
#pragma once

#include <torch/types.h>

#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>
#include <lockstep/app/report/bench_options.h>

namespace lockstep {

// The replicas of one measurement.
struct BenchReplicas {
  TrainWorld world = {};                    // its devices are those of this measurement
  std::vector<torch::Device> devices = {};  // of this process

  int count() const {
    return world.single_process() ? static_cast<int>(devices.size()) : world.layout().world_size();
  }

  // In the syntax of --devices: "cpux2"; "cpux2+cpu" for several processes; three or more in a row that have
  // equal lists are counted: "4(cpux2)".
  std::string spec() const;
};

// One element per list of --devices, or of `otherwise` if there is none. The first lists of several
// processes make the first measurement, and so on; all processes call it, and share the cores as
// gather_members() (app/processes/assemble.h) says. Throws as device_lists() and gather_members() do, and
// UsageError when the processes give different numbers of lists.
std::vector<BenchReplicas> bench_replicas(const TrainWorld& world, const BenchOptions& options,
                                          const std::vector<std::string>& otherwise);

}  // namespace lockstep
