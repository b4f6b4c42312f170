// What somebody who waits for an evaluation is told.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include <lockstep/app/terminal/logging.h>
#include <lockstep/app/train/line_timer.h>

namespace lockstep {

// Says how far an evaluation is, in a line of its own from time to time, where it takes longer than a few
// seconds: "evaluating: 2560 of 10000 images". Nothing at its end, where its result is printed.
class EvaluationNotice {
 public:
  using Tell = std::function<void(std::string_view line)>;

  // The evaluation begins.
  explicit EvaluationNotice(SecondsClock clock = steady_seconds, Tell tell = inform);

  // So many rows are done.
  void operator()(int64_t rows_done, int64_t rows);

 private:
  const SecondsClock clock_;
  const Tell tell_;
  LineTimer lines_;
};

}  // namespace lockstep
