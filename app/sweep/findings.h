// What a sweep prints: its lines, its table, and the sentences that its results amount to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/sweep/cell.h>
#include <lockstep/app/sweep/record.h>

namespace lockstep {

// The columns of a sweep's lines, as wide as its cells need.
std::vector<Column> sweep_columns(const std::vector<SweepCell>& cells);

// A line's values. kept: it was trained earlier.
Json sweep_row(const CellResult& result, bool kept);

// Test accuracy by learning rate (as given) and device list, the best over the other axes, with its heading;
// empty unless there are at least two of both.
std::string accuracy_table(const std::vector<CellResult>& results);

// The best cell; how the best learning rate moves with the number of replicas; what diverged. Of at least one
// result, each measured on so many test images: accuracies that these cannot tell apart count as equal.
std::vector<Finding> findings_of(const std::vector<CellResult>& results, int64_t test_rows);

// How far two accuracies near `accuracy` must lie apart to differ: two standard errors of the difference of
// two shares of so many images.
double accuracy_margin(double accuracy, int64_t test_rows);

}  // namespace lockstep
