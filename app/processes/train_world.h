// The processes of a training run, and the devices of each.
#pragma once

#include <torch/types.h>

#include <memory>
#include <string>
#include <vector>

#include <lockstep/parallel/collectives/allreduce/allreduce_choice.h>
#include <lockstep/parallel/process_group.h>
#include <lockstep/parallel/world/world.h>

namespace lockstep {

// Ranks are replicas, counted over the processes in order: with 3 and 1 replicas process 1 has rank 3.
struct TrainWorld {
  World place = {};                                       // of this process
  std::shared_ptr<ProcessGroup> process_group = nullptr;  // null: this process alone
  // By process, one replica each. Empty for a process alone, and before meet() has asked all processes.
  std::vector<std::vector<torch::Device>> devices = {};
  std::vector<AllreduceWish> wishes = {};  // by process: whether NCCL can join these devices

  bool single_process() const { return place.processes == 1; }
  bool leads() const { return place.process == 0; }  // it prints, and writes the files
  int replicas() const { return replicas_before(place.processes); }
  int first_rank() const { return replicas_before(place.process); }

  // For messages.
  std::string name() const;                    // of this process: "ranks 2-3 (process 1)"
  std::string replica_device(int rank) const;  // "cpu of process 1"
  std::string device_lists() const;            // "[cpu, cpu] + [cpu]"
  std::string text() const;                    // "2 (torchrun), 3 replicas: [cpu, cpu] + [cpu]"

 private:
  int replicas_before(int process) const;
};

}  // namespace lockstep
