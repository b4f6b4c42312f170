// One training among those that `bench scaling` times in turn.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/app/report/report.h>
#include <lockstep/app/report/timed_training.h>

namespace lockstep {

enum class Scaling {
  kStrong,  // the same global batch on n replicas: b
  kWeak,    // the same batch on each: n b, at n times the learning rate
};

inline constexpr Choice<Scaling> kScalingNames[] = {{"strong", Scaling::kStrong}, {"weak", Scaling::kWeak}};

struct Contender {
  Scaling scaling = Scaling::kStrong;
  TrainPlan plan;
  int neighbours = 0;  // one-replica trainings of the same plan that keep other cores busy in its turns
  std::vector<double> seconds = {};  // a step, turn by turn
  std::vector<double> sync = {};     // of it, exposed sync as the host sees it
  bool agree = false;                // its replicas, after all turns
  std::vector<int64_t> shares = {};  // rows of a step that each replica takes, after all turns
  std::optional<double> accuracy = {};

  int replicas() const { return plan.world_size(); }
  double rows() const;  // of a step
};

// Gives every contender `repeat` turns of about a third of a second (or of so many steps, if not 0), one
// after the other in each round; fewer, but one at least, when Ctrl-C comes. All are alive at once.
void take_turns(std::vector<Contender>& contenders, int repeat, int64_t steps, const BenchReport& report);

// Images a second over the reference's, turn by turn; nothing from fewer than three.
std::optional<double> speed_up(const Contender& contender, const Contender& reference);

// The largest difference between the weights after three steps, in double, on the plan's devices and on
// `reference`'s, as a part of the largest weight: the same batches, so for a network whose rows do not depend
// on each other it is rounding alone. Both plans are strong.
double weights_apart(const TrainPlan& plan, const TrainPlan& reference);

}  // namespace lockstep
