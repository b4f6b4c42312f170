// lockstep train: trains a recipe on a list of devices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/terminal.h>

namespace CLI {
class App;
}

namespace lockstep {

// As typed; what is empty comes from the recipe or is derived.
struct TrainOptions {
  // what
  std::string recipe = "lenet-scratch";
  std::optional<std::string> model;
  std::optional<std::string> data;     // a folder, or "synthetic"
  std::optional<int64_t> limit_train;  // rows
  std::optional<int64_t> limit_test;   // rows
  std::optional<int64_t> limit_steps;  // steps of the whole run
  std::optional<int64_t> epochs;
  std::optional<int64_t> batch_size;  // global
  uint64_t seed = 0;

  // where
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  std::string split = "even";

  // how
  std::optional<double> lr;
  std::optional<double> momentum;
  std::optional<double> weight_decay;
  std::optional<double> clip_norm;
  bool nesterov = false;
  std::string optimizer = "sgd";
  std::optional<std::string> schedule;
  std::optional<int64_t> warmup_epochs;
  std::string precision = "fp32";
  int accumulate = 1;
  std::string bn = "root";
  std::optional<std::string> sync;
  std::optional<int64_t> bucket_mb;
  std::optional<std::string> allreduce;
  std::string kernels = "auto";
  std::string cuda_graph = "auto";
  std::optional<int> in_flight;  // steps
  bool deterministic = false;
  bool invariant = false;

  // watch and keep
  int64_t log_every = 50;              // steps
  std::optional<std::string> metrics;  // a file of JSON lines
  std::optional<std::string> trace;    // a file for chrome://tracing
  std::optional<std::string> save;     // a safetensors file
  bool overwrite = false;
  bool print_weights_hash = false;
  bool quiet = false;
  bool dry_run = false;
};

void setup_train(CLI::App& app);
void run_train(const TrainOptions& options, ColorMode color);

}  // namespace lockstep
