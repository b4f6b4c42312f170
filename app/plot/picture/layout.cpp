#include <lockstep/app/plot/picture/layout.h>

#include <algorithm>
#include <cmath>

namespace lockstep::plot {
namespace {

constexpr double kPictureMargin = 28;  // around everything
constexpr double kPanelGap = 26;       // between panels
constexpr double kTitleDrop = 18;      // from the margin to the title's base line
constexpr double kSubtitleDrop = 20;   // from there to the subtitle's base line
constexpr double kAbovePanel = 34;     // room for the panel's title
constexpr double kTickGap = 8;         // between an axis and its labels
constexpr double kYLabelWidth = 24;    // of the y axis's label
constexpr double kLegendRow = 22;
constexpr double kLegendGap = 28;  // between its columns, and above it

double widest_label(const Axis& axis, Canvas& canvas) {
  double widest = 0;
  for (const auto& tick : axis.ticks) widest = std::max(widest, canvas.text_width(tick.label, kTextFont));
  return widest;
}

// Room left of the axes for tick labels and the axis label. All panels of a column have the same.
double room_for_y(const Figure& figure, size_t column, Canvas& canvas) {
  double room = 0;
  for (size_t i = column; i < figure.panels.size(); i += static_cast<size_t>(figure.columns)) {
    const auto& axis = figure.panels[i].y;
    room = std::max(room, widest_label(axis, canvas) + kTickGap + (axis.label.empty() ? 0 : kYLabelWidth));
  }
  return room;
}

// Returns the lower end of the panels.
double place_panels(const Figure& figure, double top, Layout& layout, Canvas& canvas) {
  const auto columns = static_cast<size_t>(figure.columns);
  const double gaps = kPanelGap * static_cast<double>(columns - 1);
  const double cell = (layout.width - 2 * kPictureMargin - gaps) / static_cast<double>(columns);
  for (size_t first = 0; first < figure.panels.size(); first += columns) {
    double bottom = top;
    for (size_t i = first; i < std::min(first + columns, figure.panels.size()); ++i) {
      const auto& panel = figure.panels[i];
      const double left = kPictureMargin + static_cast<double>(i - first) * (cell + kPanelGap);
      const double above = panel.title.empty() ? kTickGap : kAbovePanel;
      const Rectangle area{left + room_for_y(figure, i - first, canvas), top + above, left + cell,
                           top + above + panel.height};
      layout.panels.push_back({area, top + kAbovePanel - 12, left + kTextFont.size});
      bottom = std::max(bottom, area.bottom + (panel.x.label.empty() ? kTickLabelDrop : kAxisLabelDrop));
    }
    top = bottom + 6;
  }
  return top;
}

// Places the legend in columns below the panels. Returns its lower end.
double place_legend(const Figure& figure, double top, Layout& layout, Canvas& canvas) {
  if (figure.legend.empty()) return top;
  const double room = layout.width - 2 * kPictureMargin;
  double widest = 0;
  for (const auto& entry : figure.legend) {
    const auto text = shortened(entry.text, room - kLegendSample, kTextFont, canvas);
    layout.legend.push_back({{}, text});
    widest = std::max(widest, canvas.text_width(text, kTextFont));
  }
  const double column = kLegendSample + widest + kLegendGap;
  const auto columns = static_cast<size_t>(std::max(1., std::floor((room + kLegendGap) / column)));
  for (size_t i = 0; i < layout.legend.size(); ++i) {
    const auto row = i / columns;
    layout.legend[i].at = {kPictureMargin + column * static_cast<double>(i % columns),
                           top + kLegendGap / 2 + kLegendRow * (static_cast<double>(row) + .5)};
  }
  return layout.legend.back().at.y + kLegendRow / 2;
}

// Returns true if the byte continues a UTF-8 character.
bool continues(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

}  // namespace

Layout lay_out(const Figure& figure, Canvas& canvas) {
  Layout layout{.left = kPictureMargin};
  const double room = layout.width - 2 * kPictureMargin;
  layout.title = shortened(figure.title, room, kTitleFont, canvas);
  layout.subtitle = shortened(figure.subtitle, room, kSubtitleFont, canvas);
  layout.title_base = kPictureMargin + kTitleDrop - 4;
  layout.subtitle_base = layout.title_base + kSubtitleDrop;
  double top = (figure.subtitle.empty() ? layout.title_base : layout.subtitle_base) + 12;
  top = place_panels(figure, top, layout, canvas);
  top = place_legend(figure, top, layout, canvas);
  layout.height = std::ceil(top + kPictureMargin - 8);
  return layout;
}

std::string shortened(const std::string& text, double width, Font font, Canvas& canvas) {
  if (canvas.text_width(text, font) <= width) return text;
  std::string shorter = "...";
  for (size_t kept = text.size(); kept > 0; --kept) {  // bytes to keep, two thirds of them from the beginning
    auto head = kept - kept / 3, tail = text.size() - kept / 3;
    while (head > 0 && continues(text[head])) --head;
    while (tail < text.size() && continues(text[tail])) ++tail;
    shorter = text.substr(0, head) + "..." + text.substr(tail);
    if (canvas.text_width(shorter, font) <= width) break;
  }
  return shorter;
}

double place_on(const Axis& axis, double value, double from, double to) {
  const auto scaled = [&](double at) { return axis.scale == Scale::kLog ? std::log(at) : at; };
  const double low = scaled(axis.low), high = scaled(axis.high);
  return from + (to - from) * (scaled(value) - low) / (high - low);
}

}  // namespace lockstep::plot
