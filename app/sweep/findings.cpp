#include <lockstep/app/sweep/findings.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>

#include <lockstep/support/counted.h>

namespace lockstep {
namespace {

using Results = std::vector<CellResult>;
using Chosen = std::function<bool(const SweepCell&)>;

// Rates may be products such as 3 x .1. Six digits are enough.
std::string rate_text(double lr) { return fmt::format("{:.6g}", lr); }

double quality_of(const CellResult& result) { return quality_of(*result.figures); }

// "test acc 0.8000", "test loss 0.0312"
std::string quality_text(const CellResult& result) {
  const auto& accuracy = result.figures->accuracy;
  return accuracy ? fmt::format("test acc {:.4f}", *accuracy)
                  : fmt::format("test loss {:.4g}", result.figures->test_loss);
}

// Below the best by this, a result may be as good.
double margin_of(const CellResult& best, int64_t test_rows) {
  return best.figures->accuracy ? accuracy_margin(*best.figures->accuracy, test_rows) : 0;
}

// The best of the chosen results (the first of equals); null if all have diverged.
const CellResult* best_of(const Results& results, const Chosen& chosen) {
  const CellResult* best = nullptr;
  for (const auto& result : results) {
    if (!result.figures || !chosen(result.cell)) continue;
    if (!best || quality_of(result) > quality_of(*best)) best = &result;
  }
  return best;
}

// The values of a member, in order of appearance.
template <class T>
std::vector<T> values_in(const Results& results, T SweepCell::*member) {
  std::vector<T> values;
  for (const auto& result : results) {
    const auto& value = result.cell.*member;
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }
  return values;
}

std::vector<std::string> device_lists(const Results& results) {
  return values_in(results, &SweepCell::devices);
}

std::vector<double> given_rates(const Results& results) { return values_in(results, &SweepCell::given_lr); }

// nullopt: all have diverged.
std::optional<Finding> best_cell(const Results& results, int64_t test_rows, const std::string& row_noun) {
  const auto* best = best_of(results, [](const auto&) { return true; });
  if (!best) return std::nullopt;
  const auto& cell = best->cell;
  const double margin = margin_of(*best, test_rows);
  const auto as_good = std::count_if(results.begin(), results.end(), [&](const auto& other) {
    return &other != best && other.figures && quality_of(other) >= quality_of(*best) - margin;
  });
  const auto others =
      as_good == 0 ? ""
      : margin == 0
          ? fmt::format("; {} as good", as_good == 1 ? "one other is" : fmt::format("{} others are", as_good))
          : fmt::format("; {} within {:.4f} of it, which {} test {}s do not tell apart",
                        as_good == 1 ? "one other is" : fmt::format("{} others are", as_good), margin,
                        with_commas(test_rows), row_noun);
  auto values = json_of(*best);
  values["as_good"] = as_good;
  return Finding{fmt::format("best: {} on {} at batch {}, lr {}, {}{}", quality_text(*best), cell.devices,
                             cell.batch_size, rate_text(cell.lr), counted(cell.epochs, "epoch"), others),
                 values};
}

// The best learning rates of a device list: that of its most accurate cell, and those whose accuracy the test
// rows cannot tell from it.
struct BestRates {
  std::string devices;
  const CellResult* best = nullptr;  // null: all have diverged
  std::vector<double> rates{};       // as trained, ascending
};

BestRates best_rates_on(const std::string& list, const Results& results, int64_t test_rows) {
  BestRates found{.devices = list,
                  .best = best_of(results, [&](const auto& cell) { return cell.devices == list; })};
  if (!found.best) return found;
  const double least = quality_of(*found.best) - margin_of(*found.best, test_rows);
  for (const double given : given_rates(results)) {
    const auto* cell =
        best_of(results, [&](const auto& other) { return other.devices == list && other.given_lr == given; });
    if (cell && quality_of(*cell) >= least) found.rates.push_back(cell->cell.lr);
  }
  std::sort(found.rates.begin(), found.rates.end());
  return found;
}

// How the best rate changes with the number of replicas. Only ranges that do not overlap count.
std::string trend_of(const std::vector<BestRates>& lists) {
  bool up = false, down = false, more = false;
  for (const auto& a : lists) {
    for (const auto& b : lists) {
      if (!a.best || !b.best || a.best->cell.replicas >= b.best->cell.replicas) continue;
      more = true;
      up |= a.rates.back() < b.rates.front();
      down |= a.rates.front() > b.rates.back();
    }
  }
  if (!more) return "";
  if (up && down) return "up and down";
  return up ? "up" : down ? "down" : "none";
}

std::string trend_text(const std::string& trend) {
  if (trend.empty()) return "";
  if (trend == "none") return ": no change with the number of replicas is visible";
  if (trend == "up and down") return ": no clear direction with the number of replicas";
  return fmt::format(": it goes {} with the number of replicas", trend);
}

std::string list_text(const BestRates& list) {
  if (!list.best) return fmt::format("none on {} (all diverged)", list.devices);
  std::vector<std::string> rates;
  for (const double lr : list.rates) rates.push_back(rate_text(lr));
  const auto& cell = list.best->cell;
  const bool scaled = cell.lr != cell.given_lr && rates.size() == 1;
  return fmt::format("{}{} on {} ({})", fmt::join(rates, " or "),
                     scaled ? fmt::format(" ({} x {})", cell.replicas, rate_text(cell.given_lr)) : "",
                     list.devices, quality_text(*list.best));
}

Json list_json(const BestRates& list) {
  if (!list.best) return {{"devices", list.devices}, {"lr", nullptr}, {"accuracy", nullptr}};
  const auto& figures = *list.best->figures;
  return {{"devices", list.devices},
          {"replicas", list.best->cell.replicas},
          {"lr", list.best->cell.lr},
          {"as_good", list.rates},
          {"accuracy", figures.accuracy ? Json(*figures.accuracy) : Json()},
          {"test_loss", figures.test_loss}};
}

Finding best_rates(const std::vector<BestRates>& lists) {
  std::vector<std::string> parts;
  Json rows = Json::array();
  for (const auto& list : lists) {
    parts.push_back(list_text(list));
    rows.push_back(list_json(list));
  }
  const auto trend = trend_of(lists);
  return {fmt::format("best learning rate, one seed each: {}{}", fmt::join(parts, ", "), trend_text(trend)),
          {{"best", rows}, {"trend", trend.empty() ? Json() : Json(trend)}}};
}

// If the best rate is the smallest or largest of the sweep, a better one may lie beyond.
std::vector<Finding> open_ends(const Results& results, const std::vector<BestRates>& lists) {
  constexpr size_t kFewest = 3;  // with two rates the best is always at an end
  const auto rates = given_rates(results);
  const auto [smallest, largest] = std::minmax_element(rates.begin(), rates.end());
  std::vector<Finding> findings;
  for (const auto& [devices, best, as_good] : lists) {
    if (!best || as_good.size() != 1 || rates.size() < kFewest) continue;
    const double rate = best->cell.given_lr;
    if (rate != *smallest && rate != *largest) continue;
    const std::string end = rate == *largest ? "larg" : "small";
    findings.push_back({fmt::format("{}: {} is the {}est rate of the sweep, a {}er one may be better",
                                    devices, rate_text(best->cell.lr), end, end),
                        {{"devices", devices}, {"lr", best->cell.lr}, {"end", end + "est"}}});
  }
  return findings;
}

std::string divergence_text(int64_t count, int64_t all, const SweepCell& lowest) {
  if (all == 1) return "the only cell has diverged";
  if (count == all) return fmt::format("all {} have diverged", counted(all, "cell"));
  return fmt::format("{} of {} diverged, at the smallest rate lr {} on {}", count, counted(all, "cell"),
                     rate_text(lowest.lr), lowest.devices);
}

// nullopt: none has diverged.
std::optional<Finding> divergence(const Results& results) {
  int64_t count = 0;
  const CellResult* lowest = nullptr;
  for (const auto& result : results) {
    if (result.figures) continue;
    ++count;
    if (!lowest || result.cell.lr < lowest->cell.lr) lowest = &result;
  }
  if (!lowest) return std::nullopt;
  return Finding{divergence_text(count, static_cast<int64_t>(results.size()), lowest->cell),
                 {{"diverged", count}, {"smallest_lr", lowest->cell.lr}}};
}

}  // namespace

std::vector<Column> sweep_columns(const std::vector<SweepCell>& cells, const std::string& row_noun,
                                  bool accuracy) {
  size_t widest = 7;
  for (const auto& cell : cells) widest = std::max(widest, cell.devices.size());
  return {{.key = "devices", .title = "devices", .width = static_cast<int>(widest), .digits = kText},
          {.key = "batch_size", .title = "batch", .unit = row_noun + "s", .width = 8},
          {.key = "rate", .title = "lr", .width = 9},
          {.key = "epochs", .title = "epochs", .width = 6},
          accuracy ? Column{.key = "accuracy", .title = "test acc", .width = 8, .digits = 4}
                   : Column{.key = "test_loss", .title = "test loss", .width = 9, .digits = 4},
          {.key = "train_loss", .title = "train loss", .width = 10, .digits = 4},
          {.key = "seconds_per_epoch", .title = "epoch", .unit = "s", .width = 8, .digits = 2},
          {.key = "images_per_second", .title = "speed", .unit = row_noun + "s/s", .width = 9},
          {.key = "note", .title = "", .width = 8, .digits = kText}};
}

Json sweep_row(const CellResult& result, bool kept) {
  auto row = json_of(result);
  row["rate"] = rate_text(result.cell.lr);
  row["note"] = fmt::format("{}{}{}", result.figures ? "" : "diverged", !result.figures && kept ? ", " : "",
                            kept ? "kept" : "");
  return row;
}

std::string quality_table(const Results& results) {
  const auto lists = device_lists(results);
  const auto rates = given_rates(results);
  if (lists.size() < 2 || rates.size() < 2) return "";
  const bool scaled = std::any_of(results.begin(), results.end(),
                                  [](const auto& result) { return result.cell.lr != result.cell.given_lr; });
  std::vector<Column> columns{{.key = "lr", .title = "lr", .unit = scaled ? "of one" : "", .width = 9}};
  const auto accuracy = std::ranges::any_of(
      results, [](const auto& result) { return result.figures && result.figures->accuracy; });
  for (const auto& list : lists) {
    const auto width = std::max<int>(accuracy ? 10 : 11, static_cast<int>(list.size()));
    columns.push_back({.key = list,
                       .title = list,
                       .unit = accuracy ? "test acc" : "test loss",
                       .width = width,
                       .digits = 4});
  }
  auto table = table_heading(columns) + "\n";
  for (const double lr : rates) {
    Json row{{"lr", rate_text(lr)}};
    for (const auto& list : lists) {
      const auto* best =
          best_of(results, [&](const auto& cell) { return cell.devices == list && cell.given_lr == lr; });
      row[list] = best ? Json(best->figures->accuracy.value_or(best->figures->test_loss)) : Json("diverged");
    }
    table += table_line(columns, row) + "\n";
  }
  return table;
}

double accuracy_margin(double accuracy, int64_t test_rows) {
  return 2 * std::sqrt(2 * accuracy * (1 - accuracy) / static_cast<double>(test_rows));
}

std::vector<Finding> findings_of(const Results& results, int64_t test_rows, const std::string& row_noun) {
  const auto best = best_cell(results, test_rows, row_noun);
  auto diverged = divergence(results);
  std::vector<Finding> findings{best ? *best : diverged.value()};
  if (given_rates(results).size() > 1) {
    std::vector<BestRates> lists;
    for (const auto& list : device_lists(results)) lists.push_back(best_rates_on(list, results, test_rows));
    findings.push_back(best_rates(lists));
    for (auto& end : open_ends(results, lists)) findings.push_back(std::move(end));
  }
  if (best && diverged) findings.push_back(std::move(*diverged));
  return findings;
}

}  // namespace lockstep
