// The state that a learning rate depends on beside the step, a part of TrainState.
// parallel/optimizer/lr_schedule.h has the rates.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

struct LrState {
  // These change with Schedule::kPlateau alone.
  double factor = 1;                // on the base rate, in (0, 1]
  std::optional<double> best = {};  // the loss that counts as the best so far; empty: none yet
  int64_t bad_losses = 0;           // since then, or since the last fall

  // The rate of Trainer::set_lr(), which holds before any schedule; empty: none.
  std::optional<double> fixed = {};

  bool operator==(const LrState&) const = default;
};

}  // namespace lockstep
