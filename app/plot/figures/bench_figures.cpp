// Pictures of bench allreduce and bench scaling.
#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/picture/lines.h>
#include <lockstep/app/plot/picture/ticks.h>

namespace lockstep::plot {
namespace {

constexpr const char* kAlone = "one";  // the mode of one device alone

std::string machine_of(const Source& source) {
  const auto environment = source.json.value("environment", Json::object());
  std::string text;
  for (const auto& gpu : environment.value("gpus", Json::array())) {
    const auto name = gpu.value("name", "GPU");
    if (text.find(name) == std::string::npos) text += name + ", ";
  }
  return text + environment.value("cpu", environment.value("processor", ""));
}

std::string text_at(const Json& row, const std::string& key) { return row.value(key, ""); }

// Logarithmic axes need values above 0.
bool on_log_axes(const std::optional<double>& x, const std::optional<double>& y) {
  return x && y && *x > 0 && *y > 0;
}

// The kinds of devices in a list such as "cuda:0x2,cuda:1" or "cpux4": "cpu", "cuda".
std::string device_kinds(const std::string& devices) {
  std::string kinds;
  std::istringstream items(devices);
  for (std::string item; std::getline(items, item, ',');) {
    const auto digit = std::min(item.find_first_of("0123456789"), item.size());
    auto kind = item.substr(0, std::min(item.find(':'), digit));
    if (digit < item.size() && kind.size() == digit && kind.ends_with('x')) kind.pop_back();
    if (kinds.find(kind) == std::string::npos) kinds += (kinds.empty() ? "" : " and ") + kind;
  }
  return kinds;
}

// The modes of a row. One device alone is the first point of all modes.
std::vector<std::string> modes_of(const Json& row, const std::vector<Json>& rows) {
  const auto mode = text_at(row, "mode");
  if (mode != kAlone) return {mode};
  std::vector<std::string> modes;
  for (const auto& other : rows) {
    const auto name = text_at(other, "mode");
    if (name != kAlone && std::find(modes.begin(), modes.end(), name) == modes.end()) modes.push_back(name);
  }
  return modes.empty() ? std::vector{mode} : modes;
}

void add_scaling(Lines& lines, const Source& source, const std::string& table, const std::string& kinds) {
  const auto rows = rows_of(source, table);
  for (const auto& row : rows) {
    const auto replicas = number_at(row, "replicas");
    const auto speedup = number_at(row, "speedup");
    if (!on_log_axes(replicas, speedup)) continue;
    const auto efficiency = number_at(row, "efficiency");  // %
    const auto devices = text_at(row, "devices");
    for (const auto& mode : modes_of(row, rows)) {
      lines.add(
          {source.name, machine_of(source), devices.empty() ? kinds : device_kinds(devices), mode},
          {*replicas, *speedup, efficiency && *replicas > 1 ? fmt::format("{:.0f} %", *efficiency) : ""});
    }
  }
}

// Adds the predicted lines in the style of the measured ones, dashed and hollow, and a legend entry.
void add_predictions(Figure& figure, const Lines& measured, const Lines& predicted) {
  for (const auto& line : predicted.lines()) {
    const auto same = std::find_if(measured.lines().begin(), measured.lines().end(),
                                   [&](const auto& other) { return other.parts == line.parts; });
    auto style = style_of_line(static_cast<int>(same - measured.lines().begin()));
    style.hollow = true;
    style.line = Line::kDashed;
    figure.panels.front().series.push_back({style, line.points});
  }
  if (!predicted.lines().empty()) {
    figure.legend.push_back(
        {.text = "predicted",
         .style = {.color = kInk, .marker = Marker::kCircle, .line = Line::kDashed, .hollow = true}});
  }
}

}  // namespace

Figure allreduce_figure(std::span<const Source> benches) {
  Lines lines;
  for (const auto& source : benches) {
    const auto before = lines.xs().size();
    for (const auto& row : rows_of(source, "allreduce")) {
      const auto bytes = number_at(row, "bytes");
      const auto busbw = number_at(row, "busbw");
      if (!on_log_axes(bytes, busbw)) continue;
      lines.add({source.name, machine_of(source), text_at(row, "devices"), text_at(row, "algorithm")},
                {*bytes, *busbw});
    }
    if (lines.xs().size() == before) nothing_to_draw(source, "measured bandwidth");
  }
  lines.sort_by_x();
  Panel panel{.height = 400};
  panel.x = byte_axis("size (bytes)", lines.xs());
  panel.y = decade_axis("bus bandwidth (GB/s)", lines.ys());
  Figure figure{.title = "Sums over replicas: bus bandwidth", .panels = {panel}};
  add_lines(figure, lines, "bus bandwidth against size");
  return figure;
}

Figure scaling_figure(std::span<const Source> benches) {
  Lines measured, predicted;
  for (const auto& source : benches) {
    const auto before = measured.xs().size();
    add_scaling(measured, source, "scaling", "");
    if (measured.xs().size() == before) nothing_to_draw(source, "measured speed-up");
    // A prediction has no devices; it belongs to the line of its mode.
    add_scaling(predicted, source, "prediction", measured.lines().back().parts.at(2));
  }
  measured.sort_by_x();
  predicted.sort_by_x();

  auto xs = measured.xs(), ys = measured.ys();
  for (const double x : predicted.xs()) xs.push_back(x);
  for (const double y : predicted.ys()) ys.push_back(y);
  const auto [least, most] = std::minmax_element(xs.begin(), xs.end());
  const Series ideal{{.color = kInk, .line = Line::kDashed, .pale = true},
                     {{*least, *least}, {*most, *most}}};
  ys.insert(ys.end(), {*least, *most});

  Panel panel{.height = 420};
  panel.x = doubling_axis("replicas", xs);
  panel.y = doubling_axis("speed-up over one replica", ys);
  panel.series.push_back(ideal);
  Figure figure{.title = "Speed-up against replicas, with the efficiency", .panels = {panel}};
  add_lines(figure, measured, "speed-up against replicas");
  add_predictions(figure, measured, predicted);
  figure.legend.push_back({.text = "ideal", .style = ideal.style});
  return figure;
}

}  // namespace lockstep::plot
