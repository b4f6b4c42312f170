#include <lockstep/parallel/training/split_tuner.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <lockstep/support/statistics.h>

namespace lockstep {
namespace {

constexpr int kIgnoredSteps = 2;  // after a change of shapes: caches, buffers and kernels warm up
constexpr int kTimedSteps = 5;    // per round; odd, so that the median is one of them
constexpr int kMaxRounds = 5;
constexpr double kSettled = .02;  // relative change below which a share has settled

}  // namespace

SplitTuner::SplitTuner(int world)
    : shares_(static_cast<size_t>(world), 1.0 / world), costs_(static_cast<size_t>(world)) {
  settled_ = world == 1;
}

void SplitTuner::observe(std::span<const int64_t> rows, std::span<const double> seconds) {
  if (settled_ || ++steps_ <= kIgnoredSteps) return;
  for (size_t i = 0; i < costs_.size(); ++i) {
    // A time of 0 is no measurement: the replica would be infinitely fast.
    if (rows[i] > 0 && seconds[i] > 0) costs_[i].push_back(seconds[i] / static_cast<double>(rows[i]));
  }
  if (steps_ == kIgnoredSteps + kTimedSteps) adjust();
}

void SplitTuner::settle(std::vector<double> shares) {
  shares_ = std::move(shares);
  settled_ = true;
}

void SplitTuner::adjust() {
  std::vector<double> speeds;
  for (size_t i = 0; i < costs_.size(); ++i) {
    // A replica without rows (in a batch smaller than the world) keeps its share.
    speeds.push_back(costs_[i].empty() ? 0 : 1 / median(costs_[i]));
  }
  const double known_shares =
      std::inner_product(shares_.begin(), shares_.end(), speeds.begin(), 0.0, std::plus<>(),
                         [](double share, double speed) { return speed > 0 ? share : 0; });
  const double all_speeds = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  double moved = 0;
  for (size_t i = 0; i < shares_.size(); ++i) {
    if (speeds[i] == 0) continue;
    const double share = known_shares * speeds[i] / all_speeds;
    moved = std::max(moved, std::abs(share / shares_[i] - 1));
    shares_[i] = share;
  }
  settled_ = moved < kSettled || ++rounds_ == kMaxRounds;
  steps_ = 0;
  for (auto& costs : costs_) costs.clear();
}

}  // namespace lockstep
