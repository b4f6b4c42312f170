// lockstep eval: test accuracy of saved weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/train/plan/loss_choice.h>
#include <lockstep/parallel/training/precision.h>

namespace CLI {
class App;
}

namespace lockstep {

struct EvalOptions {
  std::optional<std::string> run;      // its folder, or that of a checkpoint
  std::optional<std::string> weights;  // instead: a safetensors file
  std::optional<std::string> model;    // default: the model that the file names
  std::optional<std::string> program;  // instead: an exported program's file
  std::optional<LossChoice> loss;      // of the program; default: the run's, else classification
  std::optional<std::string> data;     // default: the run's
  std::optional<uint64_t> seed;        // of synthetic data; default: the run's
  std::optional<int64_t> limit_test;   // rows
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
