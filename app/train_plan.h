// What a training run will do, with everything resolved and derived, before it does any of it.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/train.h>
#include <lockstep/data/dataset.h>
#include <lockstep/support/types.h>

namespace lockstep {

struct TrainPlan {
  std::string recipe;
  std::string model;
  Dataset data;
  std::string data_origin;  // the folder, or how it was made

  std::vector<torch::Device> devices;
  int threads = 1;  // per replica

  int64_t epochs = 0;
  int64_t batch_size = 0;  // global
  double lr = 0;
  uint64_t seed = 0;
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;  // of the whole run, a limit applied

  Params initial;  // on the host, named as parameter_names says
  std::vector<std::string> parameter_names;
  Network network;
  int64_t parameter_count = 0;
  int64_t memory_estimate = 0;  // bytes resident at the peak

  int world_size() const { return static_cast<int>(devices.size()); }
};

// Reads the data and builds the model; writes nothing. Throws what they throw.
TrainPlan make_train_plan(const TrainOptions& options);

// The table a run starts with.
std::string describe(const TrainPlan& plan);

}  // namespace lockstep
