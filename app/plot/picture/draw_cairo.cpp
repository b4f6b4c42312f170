// Draws with cairo. No other file uses it.
#include <cairo-svg.h>
#include <cairo.h>
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numbers>

#include <lockstep/app/plot/picture/draw.h>
#include <lockstep/app/plot/picture/layout.h>
#include <lockstep/app/plot/picture/paint.h>
#include <lockstep/support/error.h>

namespace lockstep::plot {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

using Surface = std::unique_ptr<cairo_surface_t, decltype(&cairo_surface_destroy)>;
using Context = std::unique_ptr<cairo_t, decltype(&cairo_destroy)>;

void check(cairo_status_t status) {
  if (status == CAIRO_STATUS_SUCCESS) return;
  if (status == CAIRO_STATUS_NO_MEMORY) throw std::bad_alloc();
  throw FailedError(fmt::format("cairo cannot draw this picture: {}", cairo_status_to_string(status)),
                    "draw fewer files at once");
}

class CairoCanvas final : public Canvas {
 public:
  explicit CairoCanvas(cairo_surface_t* surface) : context_(cairo_create(surface), &cairo_destroy) {
    // Makes texts equally wide in both formats, so that one layout serves both.
    const std::unique_ptr<cairo_font_options_t, decltype(&cairo_font_options_destroy)> options(
        cairo_font_options_create(), &cairo_font_options_destroy);
    cairo_font_options_set_hint_metrics(options.get(), CAIRO_HINT_METRICS_OFF);
    cairo_font_options_set_hint_style(options.get(), CAIRO_HINT_STYLE_NONE);
    cairo_font_options_set_antialias(options.get(), CAIRO_ANTIALIAS_GRAY);
    cairo_set_font_options(context(), options.get());
    cairo_set_line_join(context(), CAIRO_LINE_JOIN_ROUND);
  }

  cairo_t* context() const { return context_.get(); }

  double text_width(const std::string& text, Font font) override {
    select(font);
    cairo_text_extents_t extents;
    cairo_text_extents(context(), text.c_str(), &extents);
    return extents.x_advance;
  }

  void text(const Text& text) override {
    if (text.text.empty()) return;
    const double width = text_width(text.text, text.font);
    set_color(text.color);
    cairo_save(context());
    cairo_translate(context(), text.at.x, text.at.y);
    if (text.upwards) cairo_rotate(context(), -kTurn / 4);
    const double shift = text.align == Align::kLeft ? 0 : text.align == Align::kCenter ? .5 : 1;
    cairo_move_to(context(), -shift * width, 0);
    cairo_show_text(context(), text.text.c_str());
    cairo_new_path(context());  // the next path must not begin at the end of the text
    cairo_restore(context());
  }

  void line(std::span<const Position> points, const Stroke& stroke) override {
    constexpr std::array kDashes{6., 4.};
    for (const auto& point : points) cairo_line_to(context(), point.x, point.y);
    set_color(stroke.color);
    cairo_set_line_width(context(), stroke.width);
    cairo_set_dash(context(), kDashes.data(), stroke.dashed ? kDashes.size() : 0, 0);
    cairo_stroke(context());
    cairo_set_dash(context(), nullptr, 0, 0);
  }

  void rectangle(const Rectangle& area, Color fill) override {
    cairo_rectangle(context(), area.left, area.top, area.width(), area.height());
    set_color(fill);
    cairo_fill(context());
  }

  void marker(Marker marker, Position at, double radius, Color color, bool hollow) override {
    outline(marker, at, radius);
    set_color(hollow ? kPaper : color);
    if (!hollow) {
      cairo_fill(context());
      return;
    }
    cairo_fill_preserve(context());
    set_color(color);
    cairo_set_line_width(context(), 1.6);
    cairo_stroke(context());
  }

 private:
  void select(Font font) {
    cairo_select_font_face(context(), "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           font.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(context(), font.size);
  }

  void set_color(Color color) { cairo_set_source_rgb(context(), color.red, color.green, color.blue); }

  void polygon(Position at, std::span<const Position> corners) {
    for (const auto& corner : corners) cairo_line_to(context(), at.x + corner.x, at.y + corner.y);
    cairo_close_path(context());
  }

  // Sizes such that all markers look equally large.
  void outline(Marker marker, Position at, double radius) {
    const double r = 1.3 * radius, s = .9 * radius, t = .4 * radius;
    switch (marker) {
      case Marker::kSquare:
        cairo_rectangle(context(), at.x - s, at.y - s, 2 * s, 2 * s);
        break;
      case Marker::kTriangle:
        polygon(at, std::array<Position, 3>{{{0, -r}, {r, s}, {-r, s}}});
        break;
      case Marker::kTriangleDown:
        polygon(at, std::array<Position, 3>{{{0, r}, {r, -s}, {-r, -s}}});
        break;
      case Marker::kDiamond:
        polygon(at, std::array<Position, 4>{{{0, -r}, {r, 0}, {0, r}, {-r, 0}}});
        break;
      case Marker::kCross:
        polygon(at, std::array<Position, 12>{{{-t, -r},
                                              {t, -r},
                                              {t, -t},
                                              {r, -t},
                                              {r, t},
                                              {t, t},
                                              {t, r},
                                              {-t, r},
                                              {-t, t},
                                              {-r, t},
                                              {-r, -t},
                                              {-t, -t}}});
        break;
      case Marker::kNone:
      case Marker::kCircle:
        cairo_new_sub_path(context());
        cairo_arc(context(), at.x, at.y, radius, 0, kTurn);
        break;
    }
  }

  Context context_;
};

cairo_status_t append(void* bytes, const unsigned char* data, unsigned length) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), length);
  return CAIRO_STATUS_SUCCESS;
}

Layout measured_layout(const Figure& figure) {
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_A8, 1, 1), &cairo_surface_destroy);
  CairoCanvas canvas(surface.get());
  auto layout = lay_out(figure, canvas);
  check(cairo_status(canvas.context()));
  return layout;
}

void paint_on(cairo_surface_t* surface, const Figure& figure, const Layout& layout, double scale) {
  CairoCanvas canvas(surface);
  cairo_scale(canvas.context(), scale, scale);
  paint(figure, layout, canvas);
  check(cairo_status(canvas.context()));
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else {
      out += c;
    }
  }
  return out;
}

// The title and texts as plain text, for search and screen readers, because cairo writes letters as outlines.
std::string described(const Figure& figure) {
  std::string words = figure.subtitle;
  const auto add = [&](const std::string& text) {
    if (!text.empty()) words += (words.empty() ? "" : "; ") + text;
  };
  for (const auto& panel : figure.panels) {
    add(panel.title);
    add(panel.x.label);
    add(panel.y.label);
  }
  for (const auto& entry : figure.legend) add(entry.text);
  return fmt::format("<title>{}</title>\n<desc>{}</desc>\n", escaped(figure.title), escaped(words));
}

std::string svg_of(const Figure& figure, const Layout& layout) {
  std::string bytes;
  const Surface surface(cairo_svg_surface_create_for_stream(append, &bytes, layout.width, layout.height),
                        &cairo_surface_destroy);
  cairo_svg_surface_set_document_unit(surface.get(), CAIRO_SVG_UNIT_PX);
  paint_on(surface.get(), figure, layout, 1);
  cairo_surface_finish(surface.get());
  check(cairo_surface_status(surface.get()));
  const auto root = bytes.find("<svg");
  const auto inside = bytes.find('>', root) + 1;
  return bytes.insert(inside, "\n" + described(figure));
}

std::string png_of(const Figure& figure, const Layout& layout) {
  const auto pixels = [](double length) { return static_cast<int>(std::ceil(length * kPngScale)); };
  const Surface surface(
      cairo_image_surface_create(CAIRO_FORMAT_RGB24, pixels(layout.width), pixels(layout.height)),
      &cairo_surface_destroy);
  paint_on(surface.get(), figure, layout, kPngScale);
  std::string bytes;
  check(cairo_surface_write_to_png_stream(surface.get(), append, &bytes));
  return bytes;
}

}  // namespace

std::string draw(const Figure& figure, PictureFormat format) {
  const auto layout = measured_layout(figure);
  return format == PictureFormat::kSvg ? svg_of(figure, layout) : png_of(figure, layout);
}

std::string png_of(const Raster& raster) {
  const Surface surface(cairo_image_surface_create(CAIRO_FORMAT_RGB24, raster.width, raster.height),
                        &cairo_surface_destroy);
  check(cairo_surface_status(surface.get()));
  cairo_surface_flush(surface.get());
  auto* bytes = cairo_image_surface_get_data(surface.get());
  const auto stride = static_cast<size_t>(cairo_image_surface_get_stride(surface.get()));
  const auto* from = raster.rgb.data();
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 0; x < raster.width; ++x, from += 3) {
      const uint32_t pixel = uint32_t{from[0]} << 16 | uint32_t{from[1]} << 8 | from[2];
      std::memcpy(bytes + static_cast<size_t>(y) * stride + 4 * static_cast<size_t>(x), &pixel, 4);
    }
  }
  cairo_surface_mark_dirty(surface.get());
  std::string png;
  check(cairo_surface_write_to_png_stream(surface.get(), append, &png));
  return png;
}

}  // namespace lockstep::plot
