// lockstep eval: test accuracy of saved weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/commands/named_weights.h>
#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/parallel/training/precision.h>

namespace CLI {
class App;
}

namespace lockstep {

struct EvalOptions : WeightsOptions {
  DataFlags data = {};           // default: the run's, and for image files what its network takes
  std::optional<uint64_t> seed;  // of synthetic data; default: the run's
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  Precision precision = Precision::kFp32;
  bool confusion = false;  // also counts which classes are taken for which
  bool json = false;
};

void setup_eval(CLI::App& app);

// Prints the test loss and accuracy, as text or as one JSON object. Pixels are normalised as in training.
// Throws NumericError if the loss is not finite, DataError for data that are not as those of the training,
// and what loading throws.
void run_eval(const EvalOptions& options);

}  // namespace lockstep
