// The sums between lines.
#include <lockstep/tests/catch.h>

#include <lockstep/app/train/progress/step_intervals.h>

using namespace lockstep;

TEST_CASE("skipped steps are counted from line to line, over the first step and over a break") {
  StepIntervals intervals;
  intervals.begin(0, {});
  intervals.add_step(8, .1);
  intervals.add_skipped(1, 32768);
  intervals.leave_out_first_step(1, /*has_line=*/false);
  intervals.add_step(8, .1);
  intervals.add_skipped(1, 16384);
  CHECK(intervals.take_printed(2).skipped == 2);
  CHECK(intervals.take_printed(3).skipped == 0);
  CHECK(intervals.epoch().loss_scale == 16384);

  RunPosition position;
  intervals.add_to(position, 4);
  StepIntervals resumed;
  resumed.begin(0, position);
  resumed.add_skipped(1, 8192);
  CHECK(resumed.epoch().skipped == 3);
  CHECK(resumed.take_recorded(1).skipped == 3);

  intervals.begin(5, {});  // the next epoch
  CHECK(intervals.epoch().skipped == 0);
  CHECK_FALSE(intervals.epoch().loss_scale);  // not in fp16
}
