// A run's world of several processes, without any connection.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include <lockstep/app/processes/train_world.h>

namespace lockstep::testing {

// Process `process` of several, with this many CPU replicas each.
inline TrainWorld world_of(int process, const std::vector<size_t>& replicas,
                           const std::string& launcher = {}) {
  TrainWorld world{.place = {.process = process, .processes = static_cast<int>(replicas.size())}};
  world.place.launcher = launcher;
  for (const auto count : replicas) {
    world.devices.emplace_back(count, torch::Device(torch::kCPU));
    world.supports.push_back(support_of(world.devices.back()));
  }
  return world;
}

}  // namespace lockstep::testing
