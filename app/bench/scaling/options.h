// The flags of `bench scaling`.
#pragma once

#include <optional>
#include <string>

#include <lockstep/app/report/timed_training.h>

namespace lockstep {

struct BenchScalingOptions : BenchTrainOptions {
  std::string scaling = "both";
  int64_t iterations = 0;         // steps per repetition; 0: as many as take a third of a second
  std::optional<int64_t> epochs;  // also train this long, for the accuracy
  std::optional<int> predict;     // up to this many replicas
  std::optional<std::string> link;
};

}  // namespace lockstep
