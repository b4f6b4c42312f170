// The output of a sweep: rows, the accuracy table and findings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/app/sweep/cell.h>
#include <lockstep/app/sweep/record.h>

namespace lockstep {

// The columns of a sweep's rows, wide enough for its cells. accuracy: its loss counts classes.
std::vector<Column> sweep_columns(const std::vector<SweepCell>& cells, const std::string& row_noun = "image",
                                  bool accuracy = true);

// The values of a row. kept: whether the result is from an earlier run.
Json sweep_row(const CellResult& result, bool kept);

// A table of the test accuracy, or without one of the test loss, by given learning rate and device list, the
// best over the other axes. Empty unless there are at least two of both.
std::string quality_table(const std::vector<CellResult>& results);

// Reports the best cell, how the best learning rate changes with the number of replicas, and what diverged.
// Accuracies that `test_rows` test rows cannot tell apart count as equal; losses only if they are. results:
// at least one.
std::vector<Finding> findings_of(const std::vector<CellResult>& results, int64_t test_rows,
                                 const std::string& row_noun = "image");

// The least significant difference between two accuracies near `accuracy`: two standard errors of the
// difference of two proportions of `test_rows` rows.
double accuracy_margin(double accuracy, int64_t test_rows);

}  // namespace lockstep
