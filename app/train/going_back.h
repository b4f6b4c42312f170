// The reaction of a run to a loss that is not finite: --on-nan.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/train/plan/on_error.h>
#include <lockstep/app/train/progress/run_position.h>
#include <lockstep/support/error.h>

namespace lockstep {

// A loss, or weights, were NaN or infinite.
class LossError : public NumericError {
 public:
  // step: of the run, from 1: the one that used or made such weights.
  LossError(const std::string& what, const std::string& hint, int64_t step)
      : NumericError(what, hint), step_(step) {}
  int64_t step() const { return step_; }

 private:
  int64_t step_;
};

// Decides whether a run goes back to its newest checkpoint, and which steps it then leaves out.
class GoingBack {
 public:
  explicit GoingBack(OnNan on_nan) : on_nan_(on_nan) {}

  bool is_wanted() const { return on_nan_ != OnNan::kStop; }

  // Throws the error where the run stops for it: with kStop, and after it has gone back ten times.
  void count(const LossError& error);

  // position: of a run that has gone back to its checkpoint of steps_done steps. Adds the steps that it now
  // leaves out, and returns them: with kRollback all up to the bad one. Nothing if going back was in vain,
  // since the checkpoint itself is bad.
  std::optional<StepRange> leave_out(RunPosition& position, int64_t steps_done, int64_t bad) const;

 private:
  const OnNan on_nan_;
  int times_ = 0;
};

}  // namespace lockstep
