#include <lockstep/models/program/row_reports.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr int64_t kFormat = 1;

RowOutcome outcome_of(const std::string& word) {
  constexpr std::array<std::pair<std::string_view, RowOutcome>, 4> kOutcomes{
      {{"equal", RowOutcome::kEqual},
       {"close", RowOutcome::kClose},
       {"different", RowOutcome::kDifferent},
       {"refused", RowOutcome::kRefused}}};
  const auto found = std::ranges::find(kOutcomes, word, &std::pair<std::string_view, RowOutcome>::first);
  if (found != kOutcomes.end()) return found->second;
  throw FormatError(
      fmt::format("has an outcome {} where equal, close, different or refused is expected", in_quotes(word)));
}

}  // namespace

std::vector<RowReport> read_row_reports(std::string_view text) {
  const auto json = parse_json(text);
  const auto format = json.at("format").integer();
  if (format != kFormat) {
    throw FormatError(
        fmt::format("has reports about rows of format {}, and lockstep reads {}", format, kFormat),
        "export it with the scripts/export_program.py of this lockstep");
  }
  std::vector<RowReport> reports;
  for (const auto& entry : json.at("rows").list()) {
    const auto rows = entry.at("rows").integer();
    if (rows < 0) throw FormatError(fmt::format("has a report about {} rows", rows));
    reports.push_back({.graph = entry.at("graph").text(),
                       .rows = rows,
                       .outcome = outcome_of(entry.at("outcome").text()),
                       .text = entry.at("text").text()});
  }
  return reports;
}

}  // namespace lockstep::program
