// lockstep eval: the test accuracy of saved weights.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace CLI {
class App;
}

namespace lockstep {

struct EvalOptions {
  std::string weights;               // a safetensors file
  std::optional<std::string> model;  // default: the one the file names
  std::optional<std::string> data;
  uint64_t seed = 0;                  // of synthetic data
  std::optional<int64_t> limit_test;  // rows
  std::string devices = "auto";
  std::optional<int> threads;  // per replica
  std::string precision = "fp32";
};

void setup_eval(CLI::App& app);
void run_eval(const EvalOptions& options);

}  // namespace lockstep
