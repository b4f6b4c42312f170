// How often a run writes a checkpoint.
#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/app/train/checkpoint/interval.h>
#include <lockstep/support/error.h>

using namespace lockstep;

namespace {

// After the last step of an epoch the position is at step 0 of the next one.
RunPosition position_at(int64_t epoch, int64_t step) {
  RunPosition position;
  position.epoch = epoch;
  position.step = step;
  return position;
}

}  // namespace

TEST_CASE("--checkpoint-every takes steps, seconds and epochs") {
  CHECK(parse_interval("500").steps == 500);
  CHECK(parse_interval("1step").steps == 1);
  CHECK(parse_interval("60s").seconds == 60);
  CHECK(parse_interval("1epoch").epochs == 1);
  CHECK(parse_interval("2epochs").epochs == 2);
  for (const std::string bad : {"", "0", "-1", "1.5", "s", "3x", "5 s", "1epochss", "99999999999999999999"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_interval(bad), UsageError);
  }
}

TEST_CASE("a checkpoint is due after so many steps or epochs") {
  const CheckpointSchedule steps(parse_interval("5"));
  CHECK(steps.due(5, position_at(1, 5), /*told=*/false));
  CHECK_FALSE(steps.due(6, position_at(2, 0), /*told=*/true));
  CHECK(steps.due(10, position_at(2, 4), /*told=*/false));
  const CheckpointSchedule epochs(parse_interval("2epochs"));
  CHECK_FALSE(epochs.due(6, position_at(2, 0), /*told=*/true));
  CHECK_FALSE(epochs.due(12, position_at(3, 1), /*told=*/true));
  CHECK(epochs.due(12, position_at(3, 0), /*told=*/false));
  const CheckpointSchedule never(std::nullopt);
  CHECK_FALSE(never.due(5, position_at(2, 0), /*told=*/true));
  for (const auto* schedule : {&steps, &epochs, &never}) CHECK_FALSE(schedule->due_by_clock(1e9));
}

TEST_CASE("a checkpoint is due so many seconds after the last one, when process 0 has said so") {
  CheckpointSchedule schedule(parse_interval("60s"));
  CHECK_FALSE(schedule.due_by_clock(59.5));
  CHECK(schedule.due_by_clock(60));
  CHECK_FALSE(schedule.due(7, position_at(2, 0), /*told=*/false));
  CHECK(schedule.due(7, position_at(1, 7), /*told=*/true));
  schedule.made(7, 70);
  CHECK(schedule.has(7));
  CHECK_FALSE(schedule.has(8));
  CHECK_FALSE(schedule.due_by_clock(129.5));
  CHECK(schedule.due_by_clock(130));
}
