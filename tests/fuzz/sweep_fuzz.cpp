// Fuzzes the file of a sweep as `sweep --resume` reads it, and prints its cells.
#include <string>
#include <vector>

#include <lockstep/app/sweep/findings.h>
#include <lockstep/app/sweep/record.h>
#include <lockstep/tests/fuzz/harness.h>

using namespace lockstep;
using fuzz::require;

namespace {

// Every cell is the same after writing and reading.
void check_round_trip(const SweepFile& read) {
  auto document = read.document;
  document["cells"] = Json::array();
  for (const auto& result : read.results) document["cells"].push_back(json_of(result));
  const auto again = parse_sweep("what was written", document.dump(2));
  require(again.results.size() == read.results.size(), "all cells come back");
  for (size_t i = 0; i < read.results.size(); ++i) {
    require(json_of(again.results[i]) == json_of(read.results[i]), "each cell comes back");
    const auto& cell = read.results[i].cell;
    require(cell.replicas > 0 && read.results[i].threads > 0 && cell.batch_size > 0 && cell.epochs > 0 &&
                cell.lr > 0,
            "counts and rates are above 0");
    require(cell.is_same_point(again.results[i].cell), "a cell is found again");
  }
}

void print(const std::vector<CellResult>& results) {
  std::vector<SweepCell> cells;
  for (const auto& result : results) cells.push_back(result.cell);
  const auto columns = sweep_columns(cells);
  auto text = table_heading(columns);
  for (const auto& result : results) text += table_line(columns, sweep_row(result, /*kept=*/true));
  text += quality_table(results);
  for (const auto& finding : findings_of(results, 10'000)) text += finding.sentence + finding.values.dump();
  require(!text.empty(), "something is printed");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  SweepFile file;
  if (!fuzz::accepted([&] { file = parse_sweep("input", fuzz::text_of(data, size)); })) return 0;
  check_round_trip(file);
  // The table costs lists x rates x cells.
  if (!file.results.empty() && file.results.size() < 50) print(file.results);
  fuzz::last_outcome += std::to_string(file.results.size());
  return 0;
}
