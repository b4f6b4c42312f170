// When a progress line is due, and the progress lines of an evaluation. Expected times are counted by hand.
#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/app/terminal/line_timer.h>
#include <lockstep/app/train/progress/evaluation_notice.h>

using lockstep::EvaluationNotice;
using lockstep::LineTimer;

namespace {

// The times of the lines when every part of the work takes `part` seconds.
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
  CHECK(lines_of(2, 130) == std::vector<double>{102, 112, 122});  // two parts take 4
  CHECK(lines_of(4, 130) == std::vector<double>{104, 112, 120, 128});
  CHECK(lines_of(20, 150) == std::vector<double>{120, 140});  // after each part
}

TEST_CASE("no line is due before the first 3 seconds") { CHECK(lines_of(.25, 102.75).empty()); }

TEST_CASE("a line that is printed early postpones the next one") {
  LineTimer timer;
  timer.start(0);
  CHECK_FALSE(timer.due(1));
  timer.shown(1);
  CHECK_FALSE(timer.due(4));
  CHECK_FALSE(timer.due(7.5));
  CHECK(timer.due(10));
}

TEST_CASE("a pause does not count as work, and does not restart the wait for the first line") {
  LineTimer timer;
  timer.start(0);
  CHECK_FALSE(timer.due(1));
  timer.start(2);
  CHECK(timer.due(2.75));
  timer.shown(2.75);
  timer.start(50);  // after a pause with lines of its own
  CHECK_FALSE(timer.due(51));
  CHECK(lines_of(timer, 51, .5, 61) == std::vector<double>{60});
}

TEST_CASE("a long evaluation prints progress lines, and none at its end") {
  // 8 blocks of 256 rows and one of 100; each takes `block` seconds.
  const auto said = [](double block, const std::string& row_noun = "image") {
    std::vector<std::string> lines;
    double now = 0;
    EvaluationNotice notice(
        row_noun, [&] { return now; }, [&](std::string_view line) { lines.emplace_back(line); });
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
        std::vector<std::string>{"evaluating: 256 of 2,148 images", "evaluating: 1,536 of 2,148 images"});
  CHECK(said(100).size() == 8);
  CHECK(said(2, "row").front() == "evaluating: 256 of 2,148 rows");
}
