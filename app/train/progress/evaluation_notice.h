// Progress lines of an evaluation.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/terminal/logging.h>

namespace lockstep {

// Prints a progress line from time to time if an evaluation takes longer than a few seconds:
// "evaluating: 2,560 of 10,000 images". Prints none at the end, where the result is printed.
class EvaluationNotice {
 public:
  using Tell = std::function<void(std::string_view line)>;

  // Create it when the evaluation starts. row_noun: as of TrainingData.
  explicit EvaluationNotice(std::string row_noun, SecondsClock clock = steady_seconds, Tell tell = inform);

  // Call it after each block.
  void operator()(int64_t rows_done, int64_t rows);

 private:
  const std::string row_noun_;
  const SecondsClock clock_;
  const Tell tell_;
  LineTimer lines_;
};

}  // namespace lockstep
