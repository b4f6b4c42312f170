// The live line of a run, written out by hand, and its width at every width of a terminal.
#include <lockstep/tests/catch.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/app/train/progress/live_line.h>
#include <lockstep/app/train/progress/live_run.h>
#include <lockstep/parallel/trainer.h>
#include <lockstep/tests/app/run_files/classified.h>

using namespace lockstep;

namespace {

const Style kPlain(false);

LiveFigures figures_of(double done) {
  return {.epoch = 3,
          .epochs = 10,
          .done = done,
          .seconds_left = 133,
          .images_per_second = 20755.4,
          .speed_unit = "img/s",
          .sums = testing::classified(5123.4, 10'000, 8125)};
}

size_t columns_of(const std::string& text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++columns) {
    const auto byte = static_cast<unsigned char>(text[i]);
    i += byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  }
  return columns;
}

std::string ascii(const LiveFigures& figures, size_t width) {
  return live_line(figures, width, false, kPlain);
}

}  // namespace

TEST_CASE("the live line at the usual widths") {
  const auto figures = figures_of(.41);
  // 71 columns of text: 8 cells are left of 79, and 3.28 of them are full.
  CHECK(live_line(figures, 79, true, kPlain) ==
        "epoch  3/10 ███▎      41% | 2:13 left | 20,755 img/s | loss 0.5123 | top1 81.2%");
  CHECK(ascii(figures, 79) ==
        "epoch  3/10 ###.....  41% | 2:13 left | 20,755 img/s | loss 0.5123 | top1 81.2%");
  // At most 40 cells: 16.4 are full.
  CHECK(
      live_line(figures, 199, true, kPlain) ==
      "epoch  3/10 ████████████████▍                         41% | 2:13 left | 20,755 img/s | loss 0.5123 | "
      "top1 81.2%");
  CHECK(ascii(figures, 60) == "epoch  3/10 ######...........  41% | 2:13 left | loss 0.5123");
  CHECK(ascii(figures, 39) == "epoch  3/10 ####......  41% | 2:13 left");
  CHECK(ascii(figures, 34) == "epoch  3/10 ##...  41% | 2:13 left");
  CHECK(ascii(figures, 33) == "epoch  3/10 ######..........  41%");
  CHECK(ascii(figures, 19) == "epoch  3/10  41%");
  CHECK(ascii(figures, 15) == " 41%");
  CHECK(ascii(figures, 3).empty());
}

TEST_CASE("during an evaluation the live line says how far it is") {
  auto figures = figures_of(.3);
  figures.evaluated = .349;  // rounded down
  CHECK(ascii(figures, 79) ==
        "epoch  3/10 #.....  30% | 2:13 left | evaluating 34% | loss 0.5123 | top1 81.2%");
  CHECK(ascii(figures, 39) == "epoch  3/10 #....  30% | evaluating 34%");
}

TEST_CASE("only a run that is done has 100% and a full bar") {
  // 15 columns are left for the bar.
  CHECK(ascii({.done = 1}, 30) == "epoch 1/1 ############### 100%");
  CHECK(ascii({.done = .99999}, 30) == "epoch 1/1 ##############.  99%");
  CHECK(live_line({.done = .99999}, 30, true, kPlain) == "epoch 1/1 ██████████████▉  99%");
  CHECK(ascii({.done = 0}, 30) == "epoch 1/1 ...............   0%");
  CHECK(ascii({.done = .29}, 30) == "epoch 1/1 ####...........  29%");  // 100 x .29 is 28.999999999999996
}

TEST_CASE("the colour of the bar takes no column") {
  CHECK(live_line(figures_of(.5), 26, false, Style(true)) == "epoch  3/10 \x1b[36m####.....\x1b[0m  50%");
}

TEST_CASE("the live line is never wider than the terminal, and shows more where there is room") {
  std::vector<LiveFigures> all;
  for (const double done : {0., .004, .41, .999, 1.}) {
    all.push_back(figures_of(done));
    all.push_back({.done = done});
    auto evaluating = figures_of(done);
    evaluating.evaluated = done;
    all.push_back(evaluating);
    all.push_back({.epoch = 1'000'000,
                   .epochs = 1'000'000,
                   .done = done,
                   .seconds_left = 1e30,
                   .images_per_second = std::numeric_limits<double>::infinity(),
                   .sums = testing::classified(1e300, 1, 1)});
  }
  for (const auto& figures : all) {
    for (const bool utf8 : {false, true}) {
      size_t bars = 0;  // separators
      for (size_t width = 1; width <= 200; ++width) {
        const auto line = live_line(figures, width, utf8, kPlain);
        INFO(width << ": " << line);
        CHECK(columns_of(line) <= width);
        if (width >= 4) CHECK(line.find('%') != std::string::npos);
        const auto now = static_cast<size_t>(std::ranges::count(line, '|'));
        CHECK(now + 1 >= bars);
        bars = std::max(bars, now);
      }
    }
  }
}

TEST_CASE("durations") {
  CHECK(duration_text(0) == "0:00");
  CHECK(duration_text(7.4) == "0:07");
  CHECK(duration_text(59.6) == "1:00");
  CHECK(duration_text(133) == "2:13");
  CHECK(duration_text(3599) == "59:59");
  CHECK(duration_text(3723) == "1:02:03");
  CHECK(duration_text(95 * 3600 + 59 * 60 + 59) == "95:59:59");
  CHECK(duration_text(4 * 86400 + 3 * 3600 + 3599) == "4 d 3 h");
  CHECK(duration_text(-1) == "0:00");
}

TEST_CASE("the time left is that of the steps and of the evaluations") {
  // 70 steps of .25 s and 2.5 evaluations of 3 s: 17.5 + 7.5.
  CHECK(seconds_of({.steps = 70, .seconds_per_step = .25, .evaluations = 2.5, .seconds_per_evaluation = 3}) ==
        25);
  CHECK(seconds_of({.steps = 70, .seconds_per_step = .25, .evaluations = 3}) == 17.5);
  CHECK(seconds_of({}) == 0);
}

TEST_CASE("the live display fits terminals of every size") {
  const std::vector<double> accuracy = {.1, .5, .8};
  size_t with_curve = 0;
  for (int width = 1; width <= 200; ++width) {
    for (const int height : {1, 2, 5, 12, 13, 24, 50}) {
      const auto lines = live_lines(figures_of(.3), accuracy, width, height, true, kPlain);
      INFO(width << " x " << height);
      CHECK(static_cast<int>(lines.size()) < std::max(height, 1));
      for (const auto& line : lines) CHECK(static_cast<int>(columns_of(line)) < width);
      CHECK((lines.size() <= 1 || lines.size() == 12));  // the line, 9 rows and the axis
      if (width == 80) CHECK(lines.size() == (height == 1 ? 0 : height < 13 ? 1 : 12));
      if (width == 20) CHECK(lines.size() == (height == 1 ? 0 : 1));
      with_curve += lines.size() > 1;
    }
  }
  CHECK(with_curve > 400);
}

TEST_CASE("the live display has a curve from the second epoch's end on") {
  const std::vector<double> accuracy = {.1, .5};
  CHECK(live_lines(figures_of(.1), std::span(accuracy).first(1), 80, 24, false, kPlain).size() == 1);
  CHECK(live_lines(figures_of(.2), accuracy, 80, 24, false, kPlain).size() == 12);
}
