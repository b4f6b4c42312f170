// The bytes of pictures. Needs cairo.
#include <zlib.h>

#include <lockstep/tests/catch.h>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/plot/picture/lines.h>
#include <lockstep/app/plot/picture/ticks.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/skip.h>

using namespace lockstep;
using namespace lockstep::plot;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;

namespace {

#define NEEDS_CAIRO \
  if (!has_cairo()) SKIP_CASE("this build has no cairo");

Figure small_figure() {
  Panel panel{.title = "accuracy"};
  panel.x = linear_axis("epoch", std::vector{0., 3.});
  panel.y = linear_axis("accuracy (share of <the> images & more)", std::vector{0., 1.});
  panel.series = {{{.color = 0, .marker = Marker::kCircle}, {{1, .25}, {2, .5}, {3, .75}}},
                  {{.color = 1, .marker = Marker::kSquare}, {{1, .125}, {2, .25}}}};
  return {.title = "A title",
          .subtitle = "subtitle",
          .panels = {panel},
          .legend = {{.text = "run 1", .style = panel.series[0].style},
                     {.text = "run 2", .style = panel.series[1].style}}};
}

bool has_cairo() {
  try {
    draw(small_figure(), PictureFormat::kSvg);
  } catch (const FailedError&) {
    return false;
  }
  return true;
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) ++found;
  return found;
}

// The number of tags that begin with "<path style=" and have this colour in the style.
int count_filled(const std::string& svg, const std::string& color) {
  int found = 0;
  for (size_t at = 0; (at = svg.find("<path ", at)) != std::string::npos; ++at) {
    auto tag = svg.substr(at, svg.find('>', at) - at);
    std::erase(tag, ' ');
    // As cairo 1.16 and 1.18 write it.
    const bool filled = tag.find("fill:rgb(" + color) != std::string::npos ||
                        tag.find("fill=\"rgb(" + color) != std::string::npos;
    found += filled;
  }
  return found;
}

// Every tag is closed, in order, and texts have no bare < > or &.
void check_well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = 0, next; (next = xml.find('<', at)) != std::string::npos;) {
    const auto text = xml.substr(at, next - at);
    CHECK(text.find('>') == std::string::npos);
    CHECK(count(text, "&") == count(text, "&amp;") + count(text, "&lt;") + count(text, "&gt;"));
    at = xml.find('>', next);
    REQUIRE(at != std::string::npos);
    const auto tag = xml.substr(next + 1, at++ - next - 1);
    REQUIRE_FALSE(tag.empty());
    CHECK(tag.find('<') == std::string::npos);
    CHECK(count(tag, "\"") % 2 == 0);
    if (tag.front() == '?' || tag.back() == '/') continue;
    const auto name = tag.substr(0, tag.find_first_of(" \n"));
    if (name.front() != '/') {
      open.push_back(name);
      continue;
    }
    REQUIRE_FALSE(open.empty());
    CHECK("/" + open.back() == name);
    open.pop_back();
  }
  CHECK(open.empty());
}

uint32_t number_at(const std::string& bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

// The filtered lines of an RGB image, one after another.
std::string image_of(const std::string& png) {
  std::string packed;
  for (size_t at = 8; at < png.size(); at += 12 + number_at(png, at)) {
    if (png.substr(at + 4, 4) == "IDAT") packed += png.substr(at + 8, number_at(png, at));
  }
  uLongf size = number_at(png, 20) * (1 + 3 * number_at(png, 16));
  std::string image(size, '\0');
  REQUIRE(uncompress(reinterpret_cast<Bytef*>(image.data()), &size,
                     reinterpret_cast<const Bytef*>(packed.data()), packed.size()) == Z_OK);
  REQUIRE(size == image.size());
  return image;
}

}  // namespace

TEST_CASE("an SVG is well-formed, has a description and a marker for each point") {
  NEEDS_CAIRO
  const auto svg = draw(small_figure(), PictureFormat::kSvg);
  check_well_formed(svg);
  CHECK_THAT(svg, StartsWith("<?xml") && ContainsSubstring("width=\"960px\""));
  CHECK_THAT(svg, ContainsSubstring("<title>A title</title>") && ContainsSubstring("; epoch; ") &&
                      ContainsSubstring("; run 2") &&
                      ContainsSubstring("accuracy (share of &lt;the&gt; images &amp; more)"));
  // Blue and vermilion markers: the points, and one each in the legend.
  CHECK(count_filled(svg, "0%,44.7") == 3 + 1);
  CHECK(count_filled(svg, "83.5") == 2 + 1);
}

TEST_CASE("a PNG is twice as large as the SVG says, and not blank") {
  NEEDS_CAIRO
  const auto figure = small_figure();
  const auto svg = draw(figure, PictureFormat::kSvg);
  const auto height = svg.find(" height=\"") + 9;
  const auto png = draw(figure, PictureFormat::kPng);
  REQUIRE(png.substr(0, 8) == "\x89PNG\r\n\x1a\n");
  CHECK(png.substr(12, 4) == "IHDR");
  CHECK(number_at(png, 16) == 1920);
  CHECK(number_at(png, 20) == 2 * std::stoul(svg.substr(height)));
  CHECK(png.substr(png.size() - 8, 4) == "IEND");  // followed by its checksum only
  const auto image = image_of(png);
  CHECK(std::set<char>(image.begin(), image.end()).size() > 50);

  auto emptier = figure;
  emptier.panels[0].series.clear();
  CHECK(image_of(draw(emptier, PictureFormat::kPng)) != image);
}

TEST_CASE("texts of any language and any bytes can be drawn") {
  NEEDS_CAIRO
  auto figure = small_figure();
  figure.title = "\xD0\x97\xE7\xAC\xAC <\"&'>";
  check_well_formed(draw(figure, PictureFormat::kSvg));
  figure.title = std::string(5000, 'x');
  CHECK(draw(figure, PictureFormat::kPng).size() > 1000);
}

TEST_CASE("a picture that is too high is refused") {
  NEEDS_CAIRO
  auto figure = small_figure();
  figure.panels[0].height = 40'000;
  CHECK_THROWS_AS(draw(figure, PictureFormat::kPng), FailedError);
}
