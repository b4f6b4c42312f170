// The step and epoch lines of a run as rows of comma-separated values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// The names of the columns, and a newline: event, epoch, step, and what a step and an epoch measure.
std::string csv_header();

// Returns the row of a `step` or `epoch` line (step_json(), epoch_json() of app/train/progress/report.h), and
// a newline. Numbers are as in the JSON lines: they read back as the same double. A value that the line
// lacks, or that is not finite, is empty. Returns nothing for other lines.
std::string csv_row(const nlohmann::ordered_json& line);

}  // namespace lockstep
