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
  std::string recipe = "lenet-scratch";
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  std::optional<int64_t> epochs;
  std::optional<int64_t> batch_size;  // global
  std::optional<double> lr;
  uint64_t seed = 0;
  std::optional<std::string> data;     // a folder, or "synthetic"
  std::optional<int64_t> limit_train;  // rows
  std::optional<int64_t> limit_steps;  // steps of the whole run
  int64_t log_every = 50;              // steps
  std::optional<std::string> metrics;  // a file of JSON lines
  bool overwrite = false;
  bool print_weights_hash = false;
  bool quiet = false;
  bool dry_run = false;
};

void setup_train(CLI::App& app);
void run_train(const TrainOptions& options, ColorMode color);

}  // namespace lockstep
