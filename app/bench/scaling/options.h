// The flags of `bench scaling`.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/report/timed_training.h>

namespace lockstep {

struct BenchScalingOptions : BenchTrainOptions {
  std::string scaling = "both";
  int64_t iterations = 0;         // steps a turn; 0: as many as take a third of a second
  std::optional<int64_t> epochs;  // also train so long, for the accuracy
  std::optional<int> predict;     // replicas
  std::optional<std::string> link;
};

}  // namespace lockstep
