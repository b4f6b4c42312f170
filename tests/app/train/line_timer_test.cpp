// When a line is due, and what an evaluation that takes long says. Expected moments are counted by hand.
#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/app/train/evaluation_notice.h>
#include <lockstep/app/train/line_timer.h>

using lockstep::EvaluationNotice;
using lockstep::LineTimer;

namespace {

// The moments at which lines are shown while parts of the work take so many seconds each.
std::vector<double> lines_of(LineTimer& timer, double from, double part, double until) {
  std::vector<double> lines;
  for (double now = from + part; now <= until; now += part) {
    if (!timer.due(now)) continue;
    lines.push_back(now);
    timer.shown(now);
  }
  return lines;
}

std::vector<double> lines_of(double part, double until) {
  LineTimer timer;
  timer.start(100);
  return lines_of(timer, 100, part, until);
}

}  // namespace

TEST_CASE("the first line comes within 3 seconds, the next ones every 10") {
  CHECK(lines_of(.5, 130) == std::vector<double>{103, 113, 123});
  CHECK(lines_of(2, 130) == std::vector<double>{102, 112, 122});  // two parts would take 4
  CHECK(lines_of(4, 130) == std::vector<double>{104, 112, 120, 128});
  CHECK(lines_of(20, 150) == std::vector<double>{120, 140});  // as soon as there is something to tell
}

TEST_CASE("no line is due while the work is younger than a line") { CHECK(lines_of(.25, 102.75).empty()); }

TEST_CASE("a line that comes anyway puts off the next one") {
  LineTimer timer;
  timer.start(0);
  CHECK_FALSE(timer.due(1));
  timer.shown(1);
  CHECK_FALSE(timer.due(4));
  CHECK_FALSE(timer.due(7.5));
  CHECK(timer.due(10));
}

TEST_CASE("a pause of the work is no part of it, and until the first line it does not start the wait again") {
  LineTimer timer;
  timer.start(0);
  CHECK_FALSE(timer.due(1));
  timer.start(2);
  CHECK(timer.due(2.75));
  timer.shown(2.75);
  timer.start(50);  // whoever paused has told about it
  CHECK_FALSE(timer.due(51));
  CHECK(lines_of(timer, 51, .5, 61) == std::vector<double>{60});
}

TEST_CASE("an evaluation says how far it is from time to time, and nothing when it is done") {
  // 8 blocks of 256 rows and one of 100, each of them as many seconds long.
  const auto said = [](double block) {
    std::vector<std::string> lines;
    double now = 0;
    EvaluationNotice notice([&] { return now; }, [&](std::string_view line) { lines.emplace_back(line); });
    for (int64_t rows = 256; rows <= 2048; rows += 256) {
      now += block;
      notice(rows, 2148);
    }
    now += block;
    notice(2148, 2148);
    return lines;
  };
  CHECK(said(.25).empty());
  CHECK(said(2) ==
        std::vector<std::string>{"evaluating: 256 of 2148 images", "evaluating: 1536 of 2148 images"});
  CHECK(said(100).size() == 8);
}
