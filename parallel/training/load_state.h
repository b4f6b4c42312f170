// The data that Trainer::load() sends from process 0 to all others.
#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <lockstep/parallel/communicator.h>
#include <lockstep/support/train_state.h>

namespace lockstep {

// The numbers of a state that every process needs before the tensors follow.
struct StateNumbers {
  bool fits = false;  // process 0 takes the state
  int64_t steps = 0;
  int64_t replica_bytes = 0;        // of the largest packed replica
  bool steps_by_parameter = false;  // of Adam: "step.NAME", not "step"
  bool has_average = false;         // of the weights
  LrState lr = {};
  std::optional<LossScaleState> loss_scale = {};
  std::vector<double> split = {};  // for this world; empty: none

  torch::Tensor to_tensor(int world) const;  // (13 + world) double
  static StateNumbers from_tensor(const torch::Tensor& numbers);
};

// Returns one packed state per rank of a world of this size, (world, n) uint8. With another number of
// replicas than the state has, each rank gets the model's buffers, an equal part of the rows, and rank 0's
// generators. buffers: those of the module, for their names.
torch::Tensor pack_replicas(const TrainState& state, int world, const std::vector<NamedTensor>& buffers);

// A collective: returns this rank's row of rank 0's table. table: (world, n) uint8 on rank 0, else ignored.
torch::Tensor scatter_rows(const torch::Tensor& table, int64_t row_bytes, Endpoint& endpoint);

}  // namespace lockstep
