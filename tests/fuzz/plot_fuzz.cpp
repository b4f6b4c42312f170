// Fuzzes the files that plot reads: metrics, benchmarks, sweeps. An input is one file, or several with a byte
// 0x1c between them. What is read is drawn, and the picture must be well-formed XML.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

constexpr char kBetweenFiles = '\x1c';

// Texts in the figure and the picture must be UTF-8 with characters that XML allows.
void check_text(const std::string& text) {
  require(
      Json::accept(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)) &&
          text ==
              Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>(),
      "text is UTF-8");
  for (const char c : text) require(static_cast<unsigned char>(c) >= 0x20, "text has no control characters");
  for (const auto* no_character : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"}) {
    require(text.find(no_character) == std::string::npos, "text has no U+FFFE and U+FFFF");
  }
}

void check_axis(const plot::Axis& axis) {
  check_text(axis.label);
  require(std::isfinite(axis.low) && std::isfinite(axis.high) && axis.low != axis.high,
          "an axis has two ends");
  require(axis.scale == plot::Scale::kLinear || axis.low > 0, "a logarithmic axis is above 0");
  require(axis.ticks.size() <= 10'000, "ticks can be told apart");
  for (const auto& tick : axis.ticks) {
    check_text(tick.label);
    require(std::isfinite(tick.at), "a tick is somewhere");
  }
}

void check_figure(const plot::Figure& figure) {
  check_text(figure.title);
  check_text(figure.subtitle);
  check_text(figure.summary);
  for (const auto& entry : figure.legend) check_text(entry.text);
  require(!figure.panels.empty() && figure.columns > 0, "there is something to draw");
  for (const auto& panel : figure.panels) {
    check_text(panel.title);
    check_axis(panel.x);
    check_axis(panel.y);
    for (const auto& series : panel.series) {
      for (const auto& point : series.points) {
        check_text(point.label);
        require(std::isfinite(point.x) && std::isfinite(point.y), "points are finite");
      }
    }
    for (const auto& bar : panel.bars) {
      check_text(bar.label);
      require(std::isfinite(bar.begin) && std::isfinite(bar.end) && bar.begin <= bar.end, "bars go forwards");
    }
  }
}

// Texts must be escaped, and no number may be NaN or infinite.
void check_picture(std::string svg) {
  std::erase(svg, '\n');
  check_text(svg);
  require(svg.ends_with("</svg>"), "the picture is whole");
  for (const auto* shapes : {"<path", "<rect", "<use"}) {
    for (size_t begin = 0; (begin = svg.find(shapes, begin)) != std::string::npos;) {
      const auto end = svg.find('>', begin);
      const auto shape = std::string_view(svg).substr(begin, end - begin);
      require(shape.find("nan") == shape.npos && shape.find("inf") == shape.npos, "all places are finite");
      begin = end;
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = fuzz::text_of(data, size);
  std::vector<plot::Source> sources;
  plot::Figure figure;
  std::string picture;
  const bool drawn = fuzz::accepted([&] {
    for (size_t begin = 0; begin <= input.size();) {
      const auto end = std::min(input.find(kBetweenFiles, begin), input.size());
      sources.push_back(plot::parse_source("folder/input", input.substr(begin, end - begin)));
      begin = end + 1;
    }
    figure = plot::figure_of(sources);
    check_figure(figure);
    picture = plot::draw(figure, plot::PictureFormat::kSvg);
  });
  if (!drawn) return 0;
  check_picture(std::move(picture));
  for (const auto& panel : figure.panels) fuzz::last_outcome += ' ' + panel.title;
  fuzz::last_outcome += figure.summary;
  return 0;
}
