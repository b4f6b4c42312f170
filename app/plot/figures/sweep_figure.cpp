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

// Sweeps whose loss counts no classes have no accuracy: they are drawn by their loss, where all are such.
bool has_accuracy(std::span<const Source> sweeps) {
  return std::ranges::any_of(sweeps, [](const Source& source) {
    const auto& cells = source.json.at("cells");
    return std::any_of(cells.begin(), cells.end(),
                       [](const Json& cell) { return number_at(cell, "accuracy").has_value(); });
  });
}

}  // namespace

Figure sweep_figure(std::span<const Source> sweeps) {
  Lines lines;
  Diverged diverged;
  const bool accuracy = has_accuracy(sweeps);
  const std::string what = accuracy ? "accuracy" : "loss";
  for (const auto& source : sweeps) {
    const auto before = lines.xs().size();
    for (const auto& cell : source.json.at("cells")) {
      diverged.add(cell);
      const auto lr = number_at(cell, "lr");
      const auto value = number_at(cell, accuracy ? "accuracy" : "test_loss");
      if (!lr || !value || *lr <= 0) continue;
      lines.add({source.name, cell.value("devices", ""), part(cell, "batch_size", "batch {:g}"),
                 part(cell, "epochs", "{:g} epochs")},
                {*lr, *value});
    }
    if (lines.xs().size() > before) continue;
    const auto why = diverged.text();
    nothing_to_draw(source,
                    "cell with an accuracy or a loss" + (why.empty() ? "" : fmt::format(" ({})", why)));
  }
  lines.sort_by_x();
  Panel panel{.height = 400};
  panel.x = decade_axis("learning rate", lines.xs());
  panel.y = linear_axis(accuracy ? "test accuracy (share of the images)" : "test loss", lines.ys());
  Figure figure{.title = fmt::format("Test {} against learning rate", what), .panels = {panel}};
  add_lines(figure, lines, fmt::format("test {} against learning rate", what));
  if (const auto note = diverged.text(); !note.empty()) {
    figure.subtitle = note + (figure.subtitle.empty() ? "" : "; " + figure.subtitle);
    figure.summary += "; " + note;
  }
  return figure;
}

}  // namespace lockstep::plot
