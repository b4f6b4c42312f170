// The figure of a sweep.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include <lockstep/app/plot/figures/figures.h>
#include <lockstep/app/plot/picture/lines.h>
#include <lockstep/app/plot/picture/ticks.h>
#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

// "batch 256", or empty if the cell has no value.
std::string part(const Json& cell, const std::string& key, const std::string& words) {
  const auto value = number_at(cell, key);
  return value ? fmt::format(fmt::runtime(words), *value) : "";
}

// Cells without a point, because their training diverged.
struct Diverged {
  int64_t count = 0, cells = 0;  // diverged, all
  std::vector<double> rates = {};

  void add(const Json& cell) {
    ++cells;
    if (!cell.value("diverged", false)) return;
    ++count;
    const auto lr = number_at(cell, "lr");
    if (lr && std::find(rates.begin(), rates.end(), *lr) == rates.end()) rates.push_back(*lr);
  }

  // "2 of 6 cells diverged (lr 0.8, 1.6)"; empty if none has.
  std::string text() {
    if (count == 0) return "";
    std::sort(rates.begin(), rates.end());
    const auto which = rates.empty() ? "" : fmt::format(" (lr {:g})", fmt::join(rates, ", "));
    return fmt::format("{} of {} diverged{}", count, counted(cells, "cell"), which);
  }
};

}  // namespace

Figure sweep_figure(std::span<const Source> sweeps) {
  Lines lines;
  Diverged diverged;
  for (const auto& source : sweeps) {
    const auto before = lines.xs().size();
    for (const auto& cell : source.json.at("cells")) {
      diverged.add(cell);
      const auto lr = number_at(cell, "lr");
      const auto accuracy = number_at(cell, "accuracy");
      if (!lr || !accuracy || *lr <= 0) continue;
      lines.add({source.name, cell.value("devices", ""), part(cell, "batch_size", "batch {:g}"),
                 part(cell, "epochs", "{:g} epochs")},
                {*lr, *accuracy});
    }
    if (lines.xs().size() > before) continue;
    const auto why = diverged.text();
    nothing_to_draw(source, "cell with an accuracy" + (why.empty() ? "" : fmt::format(" ({})", why)));
  }
  lines.sort_by_x();
  Panel panel{.height = 400};
  panel.x = decade_axis("learning rate", lines.xs());
  panel.y = linear_axis("test accuracy (share of the images)", lines.ys());
  Figure figure{.title = "Test accuracy against learning rate", .panels = {panel}};
  add_lines(figure, lines, "test accuracy against learning rate");
  if (const auto note = diverged.text(); !note.empty()) {
    figure.subtitle = note + (figure.subtitle.empty() ? "" : "; " + figure.subtitle);
    figure.summary += "; " + note;
  }
  return figure;
}

}  // namespace lockstep::plot
