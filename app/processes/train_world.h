// The processes of a training run, and the devices of each.
#pragma once

#include <torch/types.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>
#include <lockstep/parallel/collectives/rank_layout.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

struct TrainWorld {
  World place = {};                                       // of this process
  std::shared_ptr<ProcessGroup> process_group = nullptr;  // null: this process alone
  // By process, one replica each. Empty for a process alone, and before gather_members() has asked all
  // processes.
  std::vector<std::vector<torch::Device>> devices = {};
  std::vector<AllreduceSupport> supports = {};  // by process: whether NCCL can join these devices

  bool single_process() const { return place.processes == 1; }
  bool leads() const { return place.process == 0; }  // it prints, and writes the files
  RankLayout layout() const;

  // Returns `wanted`, with kAuto resolved, for sums over all replicas. own: the devices of this process.
  // Throws UsageError or DeviceError if `wanted` cannot sum over them.
  Allreduce chosen_allreduce(Allreduce wanted, std::span<const torch::Device> own) const;

  // For messages.
  std::string name() const;                    // of this process: "ranks 2-3 (process 1)"
  std::string replica_device(int rank) const;  // "cpu of process 1"
  std::string device_lists() const;            // "[cpu, cpu] + [cpu]"
  std::string text() const;                    // "2 (torchrun), 3 replicas: [cpu, cpu] + [cpu]"
};

// Calls each(list, count) for every list of devices: one call for lists that are equal and follow each other,
// if they are three or more.
void for_equal_lists(const std::vector<std::vector<torch::Device>>& lists,
                     const std::function<void(const std::vector<torch::Device>& list, size_t count)>& each);

}  // namespace lockstep
