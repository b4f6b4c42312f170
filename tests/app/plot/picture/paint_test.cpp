// Where the parts of a picture lie. The test's canvas records what is drawn.
#include <lockstep/tests/catch.h>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/plot/picture/lines.h>
#include <lockstep/app/plot/picture/paint.h>
#include <lockstep/app/plot/picture/place_labels.h>
#include <lockstep/app/plot/picture/ticks.h>

using namespace lockstep::plot;
using Catch::Matchers::ContainsSubstring;

namespace {

bool overlap(const Rectangle& a, const Rectangle& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// Every letter is .6 of the font size wide; a line of text is as high as the font size.
class NotingCanvas final : public Canvas {
 public:
  struct Word {
    std::string text;
    Rectangle box;
  };
  struct Mark {
    Position at;
    bool hollow;
  };

  double text_width(const std::string& text, Font font) override {
    return .6 * font.size * static_cast<double>(text.size());
  }
  void text(const Text& text) override {
    if (text.text.empty()) return;
    const double width = text_width(text.text, text.font), size = text.font.size;
    const double shift = text.align == Align::kLeft ? 0 : text.align == Align::kCenter ? width / 2 : width;
    const auto& at = text.at;
    const Rectangle flat{at.x - shift, at.y - .8 * size, at.x - shift + width, at.y + .2 * size};
    const Rectangle upright{at.x - .8 * size, at.y + shift - width, at.x + .2 * size, at.y + shift};
    words.push_back({text.text, text.upwards ? upright : flat});
  }
  void line(std::span<const Position> points, const Stroke&) override {
    lines.emplace_back(points.begin(), points.end());
  }
  void rectangle(const Rectangle& area, Color) override { rectangles.push_back(area); }
  void marker(Marker, Position at, double, Color, bool hollow) override { marks.push_back({at, hollow}); }

  std::vector<Word> words;
  std::vector<Mark> marks;
  std::vector<std::vector<Position>> lines;
  std::vector<Rectangle> rectangles;
};

struct Painted {
  Layout layout;
  NotingCanvas canvas;
};

Painted painted(const Figure& figure) {
  Painted result;
  result.layout = lay_out(figure, result.canvas);
  paint(figure, result.layout, result.canvas);
  return result;
}

// Two panels of four lines each, with a legend of long names.
Figure busy_figure() {
  Figure figure{.title = "Title", .subtitle = "subtitle", .columns = 2};
  for (int p = 0; p < 2; ++p) {
    Panel panel{.title = "panel"};
    panel.x = linear_axis("epoch", std::vector{0., 10.});
    panel.y = linear_axis("accuracy", std::vector{0., 1.});
    for (int i = 0; i < 4; ++i)
      panel.series.push_back({style_of_line(i), {{1, .1 * i, "50 %"}, {9, .2 * i, "60 %"}}});
    figure.panels.push_back(panel);
  }
  for (int i = 0; i < 4; ++i) {
    figure.legend.push_back(
        {.text = "run " + std::string(static_cast<size_t>(10 * i), 'x'), .style = style_of_line(i)});
  }
  return figure;
}

}  // namespace

TEST_CASE("points lie where the axes say") {
  Panel panel{.height = 200};
  panel.x = {.scale = Scale::kLog, .low = 1, .high = 100};
  panel.y = {.low = 0, .high = 4};
  panel.series = {{{.marker = Marker::kCircle}, {{1, 0}, {10, 1}, {100, 4}}},
                  {{.marker = Marker::kSquare, .hollow = true}, {{10, 2}}}};
  const auto [layout, canvas] = painted({.panels = {panel}});
  const auto& area = layout.panels.at(0).area;
  CHECK(area.height() == 200);
  REQUIRE(canvas.marks.size() == 4);
  CHECK(canvas.marks[0].at.x == Approx(area.left));
  CHECK(canvas.marks[0].at.y == Approx(area.bottom));
  CHECK(canvas.marks[1].at.x == Approx((area.left + area.right) / 2));  // 10 is halfway from 1 to 100
  CHECK(canvas.marks[1].at.y == Approx(area.bottom - 50));
  CHECK(canvas.marks[2].at.x == Approx(area.right));
  CHECK(canvas.marks[2].at.y == Approx(area.top));
  CHECK(canvas.marks[3].at.y == Approx(area.bottom - 100));
  CHECK(canvas.marks[3].hollow);
  CHECK_FALSE(canvas.marks[0].hollow);
  const auto joined = std::find_if(canvas.lines.begin(), canvas.lines.end(),
                                   [](const auto& line) { return line.size() == 3; });
  CHECK(joined != canvas.lines.end());
}

TEST_CASE("a line of one point without a marker is visible") {
  Panel panel;
  panel.series = {{{.marker = Marker::kNone}, {{.5, .5}}}};
  CHECK(painted({.panels = {panel}}).canvas.marks.size() == 1);
}

TEST_CASE("bars take their track and their time") {
  Panel panel{.bars = {{0, 10, 0, 0, "long enough"},
                       {10, 10.5, 1, 4, "too long for its bar"},
                       {12, 20, 1, 4, "its neighbour"}},
              .height = 100};
  panel.x = {.low = 0, .high = 20};
  panel.y = {.low = 2, .high = 0};
  const auto [layout, canvas] = painted({.panels = {panel}});
  const auto& area = layout.panels.at(0).area;
  REQUIRE(canvas.rectangles.size() == 4);  // the paper, and three bars
  const auto& first = canvas.rectangles[1];
  const auto& second = canvas.rectangles[2];
  CHECK(first.left == Approx(area.left));
  CHECK(first.right == Approx(area.left + area.width() / 2).margin(1.01));
  CHECK(first.bottom < (area.top + area.bottom) / 2);  // track 0 is above track 1
  CHECK(second.top > (area.top + area.bottom) / 2);
  const auto has = [&](const std::string& text) {
    return std::any_of(canvas.words.begin(), canvas.words.end(),
                       [&](const auto& word) { return word.text == text; });
  };
  CHECK(has("long enough"));
  CHECK_FALSE(has("too long for its bar"));
  CHECK_FALSE(has("its neighbour"));  // a track has all of its labels or none
}

TEST_CASE("no text covers another, the data or the border") {
  auto figure = busy_figure();
  const auto [layout, canvas] = painted(figure);
  const Rectangle picture{0, 0, layout.width, layout.height};
  for (size_t i = 0; i < canvas.words.size(); ++i) {
    const auto& [text, box] = canvas.words[i];
    INFO(text << " at " << box.left << ", " << box.top);
    CHECK((box.left > 0 && box.top > 0 && box.right < picture.right && box.bottom < picture.bottom));
    for (size_t k = i + 1; k < canvas.words.size(); ++k) {
      INFO("and " << canvas.words[k].text);
      CHECK_FALSE(overlap(box, canvas.words[k].box));
    }
    if (text == "50 %" || text == "60 %") continue;  // labels of points
    for (const auto& place : layout.panels) CHECK_FALSE(overlap(box, place.area));
  }
  // Eight markers per panel, and four in the legend below the panels.
  CHECK(canvas.marks.size() == 8 + 8 + 4);
  for (const auto& place : layout.legend) CHECK(place.at.y > layout.panels[1].area.bottom);
}

TEST_CASE("many names make a longer legend, and long names are shortened in the middle") {
  auto figure = busy_figure();
  const auto before = painted(figure).layout.height;
  for (int i = 0; i < 20; ++i)
    figure.legend.push_back({.text = "another " + std::to_string(i) + std::string(200, 'x') + "end"});
  const auto [layout, canvas] = painted(figure);
  CHECK(layout.height > before + 300);
  const auto& name = layout.legend.back().text;
  CHECK(name.size() < 150);
  CHECK_THAT(name, Catch::Matchers::StartsWith("another 19xxx") && ContainsSubstring("...") &&
                       Catch::Matchers::EndsWith("xend"));
}

TEST_CASE("shortening never splits a character") {
  NotingCanvas canvas;
  std::string text;
  for (int i = 0; i < 30; ++i) text += "\xC3\xA4";  // a with two dots
  for (double width = 30; width < 400; width += 7) {
    const auto shorter = shortened(text, width, kTextFont, canvas);
    CHECK(canvas.text_width(shorter, kTextFont) <= width);
    const auto dots = shorter.find("...");
    REQUIRE(dots != std::string::npos);
    CHECK(dots % 2 == 0);
    CHECK((shorter.size() - 3) % 2 == 0);
  }
  CHECK(shortened("short", 1000, kTextFont, canvas) == "short");
}

TEST_CASE("labels cover neither markers nor each other, and stay inside") {
  const Rectangle area{0, 0, 400, 300};
  std::vector<LabelledPoint> points;
  for (int i = 0; i < 40; ++i) {
    points.push_back({{10. + 37 * (i * 7 % 11), 8. + 23 * (i * 5 % 13)}, 4, i % 3 == 0 ? 0. : 30.});
  }
  const auto places = place_labels(points, {}, area, 12);
  REQUIRE(places.size() == points.size());
  int placed = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    if (points[i].width == 0) CHECK_FALSE(places[i]);
    if (!places[i]) continue;
    ++placed;
    const auto& box = *places[i];
    CHECK(box.width() == Approx(30));
    CHECK((box.left >= 0 && box.right <= 400 && box.top >= 0 && box.bottom <= 300));
    for (const auto& [at, radius, width] : points) {
      CHECK_FALSE(overlap(box, {at.x - radius, at.y - radius, at.x + radius, at.y + radius}));
    }
    for (size_t k = i + 1; k < places.size(); ++k) CHECK((!places[k] || !overlap(box, *places[k])));
  }
  CHECK(placed > 10);
}

TEST_CASE("a label avoids lines and is left out if there is no room") {
  const Rectangle area{0, 0, 200, 200};
  const std::vector<std::vector<Position>> line{{{0, 200}, {200, 0}}};  // rising
  const auto free = place_labels({{{100, 100}, 4, 30}}, line, area, 12);
  REQUIRE(free[0]);
  // Both corners on one side of the line x + y = 200.
  CHECK((free[0]->left + free[0]->top > 200 || free[0]->right + free[0]->bottom < 200));
  CHECK_FALSE(place_labels({{{10, 10}, 4, 30}}, {}, {0, 0, 20, 20}, 12)[0]);
}

TEST_CASE("the first 42 lines look different") {
  for (int i = 0; i < 42; ++i) {
    for (int k = i + 1; k < 42; ++k) {
      const auto a = style_of_line(i), b = style_of_line(k);
      CHECK((a.color != b.color || a.marker != b.marker));
    }
  }
}

TEST_CASE("the cells of a matrix fill the panel, with labels where all fit") {
  Figure figure{.title = "matrix"};
  Panel panel{.height = 80};
  panel.x = {.low = 0, .high = 2};
  panel.y = {.low = 2, .high = 0};
  panel.cells = {{0, 0, 1, "3"}, {1, 0, .25, "1"}, {0, 1, 0, ""}, {1, 1, 1, "2"}};
  figure.panels = {panel};
  const auto [layout, canvas] = painted(figure);
  const auto& area = layout.panels[0].area;
  REQUIRE(canvas.rectangles.size() == 5);  // the paper first
  CHECK(canvas.rectangles[1].left == Approx(area.left));
  CHECK(canvas.rectangles[1].top == Approx(area.top));
  CHECK(canvas.rectangles[4].right == Approx(area.right));
  CHECK(canvas.rectangles[4].bottom == Approx(area.bottom));
  const auto has = [](const NotingCanvas& all, const std::string& text) {
    return std::any_of(all.words.begin(), all.words.end(),
                       [&](const auto& word) { return word.text == text; });
  };
  CHECK(has(canvas, "3"));
  figure.panels[0].cells[1].label = std::string(200, '1');  // wider than its cell
  // Cells with labels have a line below and one to the right, so that neighbours are seen as two.
  const auto unlabelled = painted(figure).canvas;
  CHECK_FALSE(has(unlabelled, "3"));
  CHECK(unlabelled.lines.size() + 2 * 4 == canvas.lines.size());
}
