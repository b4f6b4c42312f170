// Operations of a graph that compute as after Python's eval().
#pragma once

#include <lockstep/models/program.h>
#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// Counts those of the graph and its regions: batch norms by running averages, and dropouts that drop nothing,
// also those within recurrent layers.
Program::EvalForm eval_form_of(const Graph& graph);

}  // namespace lockstep::program
