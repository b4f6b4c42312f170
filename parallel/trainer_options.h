// The options of a Trainer, and which of them exclude each other.
#pragma once

#include <torch/types.h>

#include <memory>
#include <optional>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/parallel/optimizer/lr_schedule.h>
#include <lockstep/parallel/processes.h>
#include <lockstep/parallel/training/batch_norm.h>
#include <lockstep/parallel/training/replica.h>

namespace lockstep {

struct TrainerOptions {
  std::vector<torch::Device> devices;  // of this process, one replica each
  std::shared_ptr<Processes> processes = nullptr;  // null: this process alone
  int threads = 1;                     // intra-op threads of each replica
  Allreduce allreduce = Allreduce::kAuto;
  ReplicaOptions replica;
  LrSchedule lr;
  int accumulate = 1;  // micro-batches per shard and step; their gradients are summed over the replicas once
  // Steps under way before step() waits for the oldest one. 1: step() returns when its step is done. 2: it
  // returns when the step before is done, so that a GPU does not idle between steps. Empty: 2 if there is a
  // GPU, else 1.
  std::optional<int> in_flight;
  std::vector<double> split;  // shares of the batch, one per replica; empty: even
  bool auto_split = false;    // finds the shares by timing the first steps
  BnPolicy bn = BnPolicy::kRoot;

  // Throws UsageError for a value out of range, and for options that exclude each other:
  // - auto_split with a split;
  // - replica.invariant with split, auto_split, accumulate, a replica.sync or bn other than the default, or a
  //   number of replicas that does not divide 8;
  // - CudaGraph::kOn with a trace, replica.invariant, auto_split or replica.wait_for_device, which need the
  //   phases of each step, or without a GPU;
  // - Precision::kTf32 without a GPU;
  // - nesterov without momentum, and either of them with AdamW.
  // Trainer's constructor calls it.
  void validate() const;
};

// The value of options.in_flight, or its default when it is empty.
int steps_in_flight(const TrainerOptions& options);

}  // namespace lockstep
