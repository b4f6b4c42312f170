// Replicas are simulated: a time per row and a time per step.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include <lockstep/parallel/training/split_tuner.h>

using lockstep::SplitTuner;

namespace {

using Rows = std::vector<int64_t>;
using Seconds = std::vector<double>;

struct Speed {
  double per_row = 1;
  double per_step = 0;
};

// Rows for these shares: rounds down, and gives the remaining rows to the largest remainders.
Rows rows_of(const std::vector<double>& shares, int64_t batch) {
  Rows rows;
  std::vector<double> lost;
  for (const double share : shares) {
    rows.push_back(static_cast<int64_t>(share * static_cast<double>(batch)));
    lost.push_back(share * static_cast<double>(batch) - static_cast<double>(rows.back()));
  }
  for (auto left = batch - std::accumulate(rows.begin(), rows.end(), int64_t{0}); left > 0; --left) {
    const auto most = std::max_element(lost.begin(), lost.end());
    ++rows[static_cast<size_t>(most - lost.begin())];
    *most = -1;
  }
  return rows;
}

Seconds seconds_of(const std::vector<Speed>& speeds, const Rows& rows) {
  Seconds seconds;
  for (size_t i = 0; i < rows.size(); ++i) {
    seconds.push_back(speeds[i].per_step + speeds[i].per_row * static_cast<double>(rows[i]));
  }
  return seconds;
}

constexpr int kMostSteps = 100;

// Shares are positive, with sum 1.
void check_shares(const SplitTuner& tuner) {
  double sum = 0;
  for (const double share : tuner.shares()) {
    REQUIRE(share > 0);
    sum += share;
  }
  REQUIRE(sum == Approx(1).epsilon(1e-12));
}

// Returns the number of steps until the tuner settled, at most kMostSteps. disturb: changes a step's
// measurement.
int settle(
    SplitTuner& tuner, const std::vector<Speed>& speeds, int64_t batch,
    const std::function<void(int step, Seconds&)>& disturb = [](int, Seconds&) {}) {
  int step = 0;
  for (; !tuner.settled() && step < kMostSteps; ++step) {
    const auto rows = rows_of(tuner.shares(), batch);
    auto seconds = seconds_of(speeds, rows);
    disturb(step, seconds);
    tuner.observe(rows, seconds);
    check_shares(tuner);
  }
  return step;
}

}  // namespace

TEST_CASE("shares are even before any measurement") {
  CHECK(SplitTuner(2).shares() == std::vector<double>{.5, .5});
  CHECK(SplitTuner(4).shares() == std::vector<double>(4, .25));
  CHECK_FALSE(SplitTuner(2).settled());
}

TEST_CASE("a replica three times as fast gets three quarters of the rows") {
  SplitTuner tuner(2);
  CHECK(settle(tuner, {{1}, {3}}, 256) < kMostSteps);
  CHECK(rows_of(tuner.shares(), 256) == Rows{192, 64});

  SplitTuner four(4);  // speeds 1, 1/2, 1/4, 1/4: of 8 parts 4, 2, 1 and 1
  CHECK(settle(four, {{1}, {2}, {4}, {4}}, 256) < kMostSteps);
  CHECK(rows_of(four.shares(), 256) == Rows{128, 64, 32, 32});
}

TEST_CASE("further rounds find shares for steps with a cost besides their rows") {
  // 40 + 192 = 40 + 3 * 64
  const std::vector<Speed> speeds{{1, 40}, {3, 40}};
  SplitTuner one_round(2);
  while (one_round.shares().front() == .5) {
    const auto rows = rows_of(one_round.shares(), 256);
    one_round.observe(rows, seconds_of(speeds, rows));
  }
  CHECK_FALSE(one_round.settled());
  CHECK(std::abs(rows_of(one_round.shares(), 256)[1] - 64) > 6);  // 10 % away

  SplitTuner tuner(2);
  CHECK(settle(tuner, speeds, 256) < kMostSteps);
  CHECK(std::abs(rows_of(tuner.shares(), 256)[1] - 64) <= 3);  // 5 %
}

TEST_CASE("with different costs per step the replicas settle at equal times") {
  const std::vector<Speed> speeds{{1, 100}, {3, 10}};  // 100 + 169.5 = 10 + 3 * 86.5
  SplitTuner tuner(2);
  CHECK(settle(tuner, speeds, 256) < kMostSteps);
  const auto rows = rows_of(tuner.shares(), 256);
  CHECK(static_cast<double>(rows[0]) == Approx(169.5).epsilon(.05));
  CHECK(static_cast<double>(rows[1]) == Approx(86.5).epsilon(.05));
}

TEST_CASE("equal replicas stay even") {
  for (const int world : {2, 3, 4, 8}) {
    SplitTuner tuner(world);
    CHECK(settle(tuner, std::vector<Speed>(static_cast<size_t>(world)), 256) < kMostSteps);
    for (const double share : tuner.shares()) CHECK(share == Approx(1. / world).epsilon(1e-12));
  }
}

TEST_CASE("one replica is settled at once") {
  SplitTuner tuner(1);
  CHECK(tuner.settled());
  tuner.observe(Rows{256}, Seconds{1});
  CHECK(tuner.shares() == std::vector<double>{1});
}

TEST_CASE("a replica without rows keeps its share, the others divide theirs") {
  SplitTuner tuner(3);
  while (!tuner.settled()) tuner.observe(Rows{1, 1, 0}, Seconds{1, 3, 0});
  check_shares(tuner);
  CHECK(tuner.shares()[2] == Approx(1. / 3).epsilon(1e-12));
  CHECK(tuner.shares()[0] > tuner.shares()[1]);
}

TEST_CASE("a measurement of 0 seconds is ignored") {
  SplitTuner tuner(2);
  const auto zero = [](int step, Seconds& seconds) {
    if (step % 3 == 0) seconds[0] = 0;
  };
  CHECK(settle(tuner, {{1}, {3}}, 256, zero) < kMostSteps);
  CHECK(rows_of(tuner.shares(), 256) == Rows{192, 64});

  SplitTuner never(2);
  while (!never.settled()) never.observe(Rows{128, 128}, Seconds{0, 0});
  CHECK(never.shares() == std::vector<double>{.5, .5});
}

TEST_CASE("single slow steps and the first ones after a change are ignored") {
  SplitTuner tuner(2);
  int since_change = 0;
  double share = .5;
  const auto disturb = [&](int step, Seconds& seconds) {
    since_change = tuner.shares().front() == share ? since_change + 1 : 1;
    share = tuner.shares().front();
    if (since_change <= 2) seconds[1] *= 50;  // buffers and kernels warm up
    if (step % 7 == 4) seconds[0] *= 20;      // another process ran
  };
  CHECK(settle(tuner, {{1}, {3}}, 256, disturb) < kMostSteps);
  CHECK(rows_of(tuner.shares(), 256) == Rows{192, 64});
}

TEST_CASE("with 5 % of noise it settles near the right shares") {
  SplitTuner tuner(2);
  uint32_t random = 1;
  const auto noise = [&](int, Seconds& seconds) {
    for (auto& value : seconds) {
      random = random * 1664525 + 1013904223;
      value *= .95 + .1 * (random >> 8) / (1 << 24);
    }
  };
  CHECK(settle(tuner, {{1}, {3}}, 256, noise) < kMostSteps);
  CHECK(rows_of(tuner.shares(), 256)[1] == Approx(64).epsilon(.08));
}

TEST_CASE("it settles after at most five rounds of seven steps, even if speeds keep changing") {
  SplitTuner tuner(2);
  int steps = 0;
  for (; !tuner.settled() && steps < kMostSteps; ++steps) {
    const bool odd = steps / 7 % 2 == 1;
    tuner.observe(Rows{128, 128}, odd ? Seconds{1, 2} : Seconds{2, 1});
    check_shares(tuner);
  }
  CHECK(steps == 35);
  const auto shares = tuner.shares();
  for (int i = 0; i < 50; ++i) tuner.observe(Rows{128, 128}, Seconds{1, 9});
  CHECK(tuner.shares() == shares);
}
