// Conditions of the Python code on sizes, which torch.export found while it traced one path:
// "L['x'].size()[1] != 1".
#pragma once

#include <string>
#include <vector>

#include <lockstep/models/program/parts.h>

namespace lockstep::program {

// Narrows the graph's ranges of sizes by the conditions. Those of the rows are left out where the export
// script has compared numbers of rows. Throws FormatError for one that is no bound of one size.
void apply_guards(const std::vector<std::string>& guards, bool rows_were_compared, ProgramGraph& graph);

}  // namespace lockstep::program
