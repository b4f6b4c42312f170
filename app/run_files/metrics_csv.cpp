#include <lockstep/app/run_files/metrics_csv.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

namespace lockstep {
namespace {

// New columns go to the end: a resumed run goes on with the header that is there.
constexpr std::array kColumns = {"event",
                                 "epoch",
                                 "step",
                                 "loss",
                                 "top1",
                                 "top5",
                                 "lr",
                                 "step_ms",
                                 "images_per_second",
                                 "resident_bytes",
                                 "data_ms",
                                 "compute_ms",
                                 "sync_ms",
                                 "update_ms",
                                 "train_loss",
                                 "train_accuracy",
                                 "test_loss",
                                 "test_accuracy",
                                 "test_top5",
                                 "train_seconds",
                                 "test_seconds"};

}  // namespace

std::string csv_header() { return fmt::format("{}\n", fmt::join(kColumns, ",")); }

std::string csv_row(const nlohmann::ordered_json& line) {
  const auto event = line.value("event", "");
  if (event != "step" && event != "epoch") return "";
  std::vector<std::string> cells = {event};
  for (size_t i = 1; i < kColumns.size(); ++i) {
    const auto value = line.find(kColumns[i]);
    const bool measured = value != line.end() && value->is_number();
    const auto text = measured ? value->dump() : "";
    cells.push_back(text == "null" ? "" : text);  // JSON has no infinity
  }
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace lockstep
