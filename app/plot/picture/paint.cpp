#include <lockstep/app/plot/picture/paint.h>

#include <algorithm>
#include <array>
#include <set>
#include <vector>

#include <lockstep/app/plot/picture/place_labels.h>

namespace lockstep::plot {
namespace {

constexpr Color kTextColor{.13, .13, .15};
constexpr Color kQuiet{.36, .36, .40};  // for secondary texts
constexpr Color kGrid{.88, .88, .87};
constexpr Color kBorder{.62, .62, .63};
constexpr double kPale = .55;  // share of the paper's colour
constexpr double kMarkerRadius = 4;
constexpr double kBaseDrop = 4;  // from the middle of a line of text to its base line
constexpr double kThinnestBar = .6;
constexpr double kDarkCell = .5;  // a share from which on its label is light

double line_width(const Style& style) {
  if (style.line == Line::kThin) return 1;
  return style.line == Line::kDashed ? 1.6 : 2;
}

// From the paper's colour to the palette's blue.
Color shade(double share) {
  const auto blue = color_of(0, false);
  const auto mixed = [&](double paper, double full) { return paper + share * (full - paper); };
  return {mixed(kPaper.red, blue.red), mixed(kPaper.green, blue.green), mixed(kPaper.blue, blue.blue)};
}

class Painter {
 public:
  Painter(const Figure& figure, const Layout& layout, Canvas& canvas)
      : figure_(figure), layout_(layout), canvas_(canvas) {}

  void paint() {
    const Rectangle all{0, 0, layout_.width, layout_.height};
    canvas_.rectangle(all, kPaper);
    frame({.5, .5, all.right - .5, all.bottom - .5});
    canvas_.text({.text = layout_.title,
                  .at = {layout_.left, layout_.title_base},
                  .font = kTitleFont,
                  .color = kTextColor});
    canvas_.text({.text = layout_.subtitle,
                  .at = {layout_.left, layout_.subtitle_base},
                  .font = kSubtitleFont,
                  .color = kQuiet});
    for (size_t i = 0; i < figure_.panels.size(); ++i) panel(figure_.panels[i], layout_.panels[i]);
    for (size_t i = 0; i < figure_.legend.size(); ++i) legend(figure_.legend[i], layout_.legend[i]);
  }

 private:
  void frame(const Rectangle& area) {
    const std::array<Position, 5> corners{{{area.left, area.top},
                                           {area.right, area.top},
                                           {area.right, area.bottom},
                                           {area.left, area.bottom},
                                           {area.left, area.top}}};
    canvas_.line(corners, {.color = kBorder, .width = 1});
  }

  void panel(const Panel& panel, const PanelPlace& place) {
    const auto& area = place.area;
    canvas_.text(
        {.text = panel.title, .at = {area.left, place.title}, .font = kPanelFont, .color = kTextColor});
    x_axis(panel.x, area);
    y_axis(panel, place);
    bars(panel, area);
    cells(panel, area);
    frame(area);
    for (const auto& series : panel.series) draw(series, panel, area);
    labels(panel, area);
  }

  void x_axis(const Axis& axis, const Rectangle& area) {
    for (const auto& tick : axis.ticks) {
      const double x = place_on(axis, tick.at, area.left, area.right);
      canvas_.line(std::array<Position, 2>{{{x, area.top}, {x, area.bottom}}}, {.color = kGrid});
      canvas_.text({.text = tick.label,
                    .at = {x, area.bottom + kTickLabelDrop},
                    .font = kTextFont,
                    .align = Align::kCenter,
                    .color = kQuiet});
    }
    canvas_.text({.text = axis.label,
                  .at = {(area.left + area.right) / 2, area.bottom + kAxisLabelDrop},
                  .font = kTextFont,
                  .align = Align::kCenter,
                  .color = kTextColor});
  }

  void y_axis(const Panel& panel, const PanelPlace& place) {
    const auto& area = place.area;
    for (const auto& tick : panel.y.ticks) {
      const double y = place_on(panel.y, tick.at, area.bottom, area.top);
      if (panel.bars.empty() && panel.cells.empty()) {
        canvas_.line(std::array<Position, 2>{{{area.left, y}, {area.right, y}}}, {.color = kGrid});
      }
      canvas_.text({.text = tick.label,
                    .at = {area.left - 8, y + kBaseDrop},
                    .font = kTextFont,
                    .align = Align::kRight,
                    .color = kQuiet});
    }
    canvas_.text({.text = panel.y.label,
                  .at = {place.y_label, (area.top + area.bottom) / 2},
                  .font = kTextFont,
                  .align = Align::kCenter,
                  .upwards = true,
                  .color = kTextColor});
  }

  static Position place(const Point& point, const Panel& panel, const Rectangle& area) {
    return {place_on(panel.x, point.x, area.left, area.right),
            place_on(panel.y, point.y, area.bottom, area.top)};
  }

  static std::vector<Position> places(const Series& series, const Panel& panel, const Rectangle& area) {
    std::vector<Position> places;
    for (const auto& point : series.points) places.push_back(place(point, panel, area));
    return places;
  }

  void draw(const Series& series, const Panel& panel, const Rectangle& area) {
    const auto& style = series.style;
    const auto color = color_of(style.color, style.pale);
    const auto at = places(series, panel, area);
    if (style.line != Line::kNone && at.size() > 1) {
      canvas_.line(at, {.color = color, .width = line_width(style), .dashed = style.line == Line::kDashed});
    }
    // A line through one point would be invisible.
    const auto marker = style.marker == Marker::kNone && at.size() == 1 ? Marker::kCircle : style.marker;
    if (marker == Marker::kNone) return;
    for (const auto& position : at) canvas_.marker(marker, position, kMarkerRadius, color, style.hollow);
  }

  static Rectangle place(const Bar& bar, const Panel& panel, const Rectangle& area) {
    Rectangle box{place_on(panel.x, bar.begin, area.left, area.right),
                  place_on(panel.y, bar.track + .16, area.bottom, area.top),
                  place_on(panel.x, bar.end, area.left, area.right),
                  place_on(panel.y, bar.track + .84, area.bottom, area.top)};
    box.right = std::max(box.right, box.left + kThinnestBar);
    if (box.width() > 4) box.right -= 1;  // a gap between adjacent bars
    return box;
  }

  void bars(const Panel& panel, const Rectangle& area) {
    std::set<int> crowded;  // tracks with a bar too short for its label; they get no labels
    for (const auto& bar : panel.bars) {
      const auto box = place(bar, panel, area);
      canvas_.rectangle(box, color_of(bar.color, false));
      if (canvas_.text_width(bar.label, kTextFont) + 8 > box.width()) crowded.insert(bar.track);
    }
    for (const auto& bar : panel.bars) {
      if (crowded.contains(bar.track)) continue;
      const auto box = place(bar, panel, area);
      canvas_.text({.text = bar.label,
                    .at = {(box.left + box.right) / 2, (box.top + box.bottom) / 2 + kBaseDrop},
                    .font = kTextFont,
                    .align = Align::kCenter,
                    .color = bar.color == 0 ? kPaper : kTextColor});
    }
  }

  static Rectangle place(const Cell& cell, const Panel& panel, const Rectangle& area) {
    return {place_on(panel.x, cell.column, area.left, area.right),
            place_on(panel.y, cell.row, area.bottom, area.top),
            place_on(panel.x, cell.column + 1, area.left, area.right),
            place_on(panel.y, cell.row + 1, area.bottom, area.top)};
  }

  void cells(const Panel& panel, const Rectangle& area) {
    bool fits = true;
    for (const auto& cell : panel.cells) {
      const auto box = place(cell, panel, area);
      canvas_.rectangle(box, shade(cell.share));
      fits = fits && canvas_.text_width(cell.label, kTextFont) + 4 <= box.width() &&
             kTextFont.size + 2 <= box.height();
    }
    if (!fits) return;
    for (const auto& cell : panel.cells) {
      const auto box = place(cell, panel, area);
      // Neighbours of one shade are seen as two.
      canvas_.line(std::array<Position, 2>{{{box.left, box.bottom}, {box.right, box.bottom}}},
                   {.color = kGrid});
      canvas_.line(std::array<Position, 2>{{{box.right, box.top}, {box.right, box.bottom}}},
                   {.color = kGrid});
      canvas_.text({.text = cell.label,
                    .at = {(box.left + box.right) / 2, (box.top + box.bottom) / 2 + kBaseDrop},
                    .font = kTextFont,
                    .align = Align::kCenter,
                    .color = cell.share > kDarkCell ? kPaper : kTextColor});
    }
  }

  void labels(const Panel& panel, const Rectangle& area) {
    std::vector<LabelledPoint> points;
    std::vector<std::vector<Position>> lines;
    for (const auto& series : panel.series) {
      const auto at = places(series, panel, area);
      for (size_t i = 0; i < at.size(); ++i) {
        if (series.style.marker == Marker::kNone) break;
        const auto& label = series.points[i].label;
        points.push_back({at[i], kMarkerRadius, label.empty() ? 0 : canvas_.text_width(label, kTextFont)});
      }
      lines.push_back(at);
    }
    const auto places = place_labels(points, lines, area, kTextFont.size);
    size_t next = 0;
    for (const auto& series : panel.series) {
      if (series.style.marker == Marker::kNone) continue;
      for (const auto& point : series.points) {
        const auto& box = places[next++];
        if (!box) continue;
        canvas_.text(
            {.text = point.label,
             .at = {box->left, box->bottom - 2},
             .font = kTextFont,
             .color = series.style.color == kInk ? kTextColor : color_of(series.style.color, false)});
      }
    }
  }

  void legend(const LegendEntry& entry, const LegendPlace& place) {
    const auto& style = entry.style;
    const auto color = color_of(style.color, style.pale);
    const double left = place.at.x, right = left + kLegendSample - 8, y = place.at.y;
    if (entry.bar) {
      canvas_.rectangle({left, y - 6, right, y + 6}, color);
    } else if (style.line != Line::kNone) {
      canvas_.line(std::array<Position, 2>{{{left, y}, {right, y}}},
                   {.color = color, .width = line_width(style), .dashed = style.line == Line::kDashed});
    }
    if (!entry.bar && style.marker != Marker::kNone) {
      canvas_.marker(style.marker, {(left + right) / 2, y}, kMarkerRadius, color, style.hollow);
    }
    canvas_.text({.text = place.text,
                  .at = {left + kLegendSample, y + kBaseDrop},
                  .font = kTextFont,
                  .color = kTextColor});
  }

  const Figure& figure_;
  const Layout& layout_;
  Canvas& canvas_;
};

}  // namespace

void paint(const Figure& figure, const Layout& layout, Canvas& canvas) {
  Painter(figure, layout, canvas).paint();
}

Color color_of(int color, bool pale) {
  constexpr std::array<Color, 7> kPalette{{{0, .447, .698},     // blue
                                           {.835, .369, 0},     // vermilion
                                           {0, .620, .451},     // bluish green
                                           {.800, .475, .655},  // reddish purple
                                           {.902, .624, 0},     // orange
                                           {.337, .706, .914},  // sky blue
                                           {0, 0, 0}}};         // black
  const auto full = color == kInk ? kQuiet : kPalette[static_cast<size_t>(color) % kPalette.size()];
  if (!pale) return full;
  const auto mixed = [](double from, double paper) { return from + kPale * (paper - from); };
  return {mixed(full.red, kPaper.red), mixed(full.green, kPaper.green), mixed(full.blue, kPaper.blue)};
}

}  // namespace lockstep::plot
