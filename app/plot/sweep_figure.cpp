// The picture of a sweep.
#include <fmt/format.h>

#include <cstdint>

#include <lockstep/app/plot/figures.h>
#include <lockstep/app/plot/lines.h>
#include <lockstep/app/plot/ticks.h>
#include <lockstep/support/counted.h>

namespace lockstep::plot {
namespace {

// "batch 256"; nothing where the cell does not say.
std::string part(const Json& cell, const std::string& key, const std::string& words) {
  const auto value = number_at(cell, key);
  return value ? fmt::format(fmt::runtime(words), *value) : "";
}

}  // namespace

Figure sweep_figure(std::span<const Source> sweeps) {
  Lines lines;
  for (const auto& source : sweeps) {
    const auto before = lines.xs().size();
    for (const auto& cell : source.json.at("cells")) {
      const auto lr = number_at(cell, "lr");
      const auto accuracy = number_at(cell, "accuracy");
      if (!lr || !accuracy || *lr <= 0) continue;
      lines.add({source.name, printable(cell.value("devices", "")), part(cell, "batch_size", "batch {:g}"),
                 part(cell, "epochs", "{:g} epochs")},
                {*lr, *accuracy});
    }
    if (lines.xs().size() == before) nothing_to_draw(source, "cell with an accuracy");
  }
  lines.sort_by_x();
  Panel panel{.height = 400};
  panel.x = decade_axis("learning rate", lines.xs());
  panel.y = linear_axis("test accuracy (share of the images)", lines.ys());
  Figure figure{.title = "Test accuracy against learning rate", .panels = {panel}};
  add_lines(figure, lines);
  figure.summary =
      "test accuracy against learning rate, " + counted(static_cast<int64_t>(lines.lines().size()), "line");
  return figure;
}

}  // namespace lockstep::plot
