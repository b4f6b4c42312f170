// How often a run writes a checkpoint: --checkpoint-every.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <lockstep/app/train/progress/run_position.h>

namespace lockstep {

// One of the three is not 0.
struct CheckpointInterval {
  int64_t steps = 0;
  int64_t epochs = 0;
  double seconds = 0;
};

// Parses "500" (steps), "60s" or "2epochs". Throws UsageError.
CheckpointInterval parse_interval(const std::string& text);

// When a run writes its next checkpoint. `now`: in seconds of the run's clock.
class CheckpointSchedule {
 public:
  explicit CheckpointSchedule(std::optional<CheckpointInterval> every) : every_(every) {}

  bool on() const { return every_.has_value(); }

  // Returns true if the clock says that one is due. Only process 0 asks, and tells the others.
  bool due_by_clock(double now) const;

  // Returns true if one is due after this step. Between epochs `position` counts the next epoch. told: see
  // above.
  bool due(int64_t steps_done, const RunPosition& position, bool told) const;

  // A checkpoint of this step has been made, or is what the run goes on from.
  void made(int64_t steps_done, double now);
  bool has(int64_t steps_done) const { return steps_done == made_steps_; }

 private:
  const std::optional<CheckpointInterval> every_;
  int64_t made_steps_ = -1;
  double made_at_ = 0;
};

}  // namespace lockstep
