#include <lockstep/app/run_files/metrics_csv.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include <lockstep/app/run_files/row_sums.h>

namespace lockstep {
// New columns go to the end: a resumed run goes on with the header that is there. So what a model's runs sum
// stays, too.
std::vector<std::string> csv_columns(std::span<const MetricKind> metrics) {
  std::vector<std::string> columns = {"event", "epoch", "step", "loss"};
  for (const auto& kind : metrics) columns.push_back(kind.name);
  for (const auto* name : {"lr", "step_ms", "images_per_second", "resident_bytes", "data_ms", "compute_ms",
                           "sync_ms", "update_ms", "train_loss"}) {
    columns.emplace_back(name);
  }
  if (!metrics.empty()) columns.push_back(fmt::format("train_{}", epoch_name(metrics.front())));
  columns.emplace_back("test_loss");
  for (const auto& kind : metrics) columns.push_back(fmt::format("test_{}", epoch_name(kind)));
  for (const auto* name : {"train_seconds", "test_seconds", "loss_scale", "skipped"})
    columns.emplace_back(name);
  return columns;
}

std::string csv_header(std::span<const std::string> columns) {
  return fmt::format("{}\n", fmt::join(columns, ","));
}

std::string csv_row(std::span<const std::string> columns, const nlohmann::ordered_json& line) {
  const auto event = line.value("event", "");
  if (event != "step" && event != "epoch") return "";
  std::vector<std::string> cells = {event};
  for (const auto& column : columns.subspan(1)) {
    const auto value = line.find(column);
    const bool measured = value != line.end() && value->is_number();
    const auto text = measured ? value->dump() : "";
    cells.push_back(text == "null" ? "" : text);  // JSON has no infinity
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace lockstep
