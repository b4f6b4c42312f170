// The export script's reports about small shards: extra/lockstep.json.
#pragma once

#include <string_view>
#include <vector>

#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// Reads {"format": 1, "rows": [{"graph": "model", "rows": 0, "outcome": "equal", "text": ""}, ...]}, with
// outcomes equal, close, different and refused. Other keys are ignored: they inform people. Throws
// FormatError.
std::vector<RowReport> read_row_reports(std::string_view text);

}  // namespace lockstep::program
