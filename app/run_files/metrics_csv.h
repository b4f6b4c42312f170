// The step and epoch lines of a run as rows of comma-separated values.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include <lockstep/support/row_sums.h>

namespace lockstep {

// The names of the columns of a run with these metrics: event, epoch, step, and what a step and an epoch
// measure.
std::vector<std::string> csv_columns(std::span<const MetricKind> metrics);

// The columns' names, and a newline.
std::string csv_header(std::span<const std::string> columns);

// Returns the row of a `step` or `epoch` line (step_json(), epoch_json() of app/train/progress/report.h), and
// a newline. Numbers are as in the JSON lines: they read back as the same double. A value that the line
// lacks, or that is not finite, is empty. Returns nothing for other lines.
std::string csv_row(std::span<const std::string> columns, const nlohmann::ordered_json& line);

}  // namespace lockstep
