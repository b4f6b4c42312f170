// lockstep eval: test accuracy of saved weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/commands/named_weights.h>
#include <lockstep/parallel/training/precision.h>

namespace CLI {
class App;
}

namespace lockstep {

struct EvalOptions : WeightsOptions {
  std::optional<std::string> data;    // default: the run's
  std::optional<uint64_t> seed;       // of synthetic data; default: the run's
  std::optional<int64_t> limit_test;  // rows
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  Precision precision = Precision::kFp32;
  bool confusion = false;  // also counts which classes are taken for which
  bool json = false;
};

void setup_eval(CLI::App& app);

// Prints the test loss and accuracy, as text or as one JSON object. Throws NumericError if the loss is not
// finite, and what loading throws.
void run_eval(const EvalOptions& options);

}  // namespace lockstep
