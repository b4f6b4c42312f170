// The curve of a run under its live line.
#include <lockstep/tests/catch.h>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/app/train/progress/curve.h>

using namespace lockstep;
using Catch::Matchers::StartsWith;

TEST_CASE("the curve in plain characters") {
  // Drawn by hand: 13 columns by 5 rows, an epoch every 3 columns, 1.0 at the top and 0.0 at the bottom.
  const std::vector<double> accuracy{0, 1, 1, .5};
  CHECK(draw_curve(accuracy, 5, 34, 5, false) ==
        "test acc 1.0 +   ****\n"
        "             |  *    **\n"
        "         0.5 +  *      o\n"
        "             | *\n"
        "         0.0 +*\n"
        "             ++--+--+--+--+\n"
        "              1  2  3  4  5  epoch\n");
}

TEST_CASE("the curve in braille dots") {
  // U+28C0 has the two lowest of the eight dots, U+2840 the lower left one alone.
  const auto picture = [](const std::string& line) {
    return "test acc 1.02 \u2524\n         1.00 \u2524" + line + "\n              \u2514";
  };
  CHECK_THAT(draw_curve(std::vector{1., 1.}, 2, 32, 2, true),
             StartsWith(picture("\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u28c0\u25cf")));
  // NaN leaves a gap.
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THAT(draw_curve(std::vector{1., kNan, 1.}, 3, 32, 2, true),
             StartsWith(picture("\u2840        \u25cf")));
}

TEST_CASE("a curve keeps to its width and has no trailing blanks") {
  std::vector<double> accuracy;
  for (const int epochs : {1, 2, 10, 99, 1000}) {
    accuracy.assign(static_cast<size_t>(epochs), .5);
    accuracy.back() = .8;
    for (const int width : {40, 64, 120}) {
      const auto text = draw_curve(accuracy, epochs, width, 9, false);
      CAPTURE(epochs, width, text);
      size_t lines = 0;
      for (size_t begin = 0; begin < text.size(); ++lines) {
        const auto end = text.find('\n', begin);
        CHECK(end - begin <= static_cast<size_t>(width));
        CHECK(text[end - 1] != ' ');
        begin = end + 1;
      }
      CHECK(lines == 11);
    }
  }
}

TEST_CASE("nothing to draw") {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  CHECK(draw_curve({}, 10, 64, 9, true).empty());
  CHECK(draw_curve(std::vector{kNan, kNan}, 10, 64, 9, true).empty());
}
