// Operations of a graph that compute as after Python's eval().
#pragma once

#include <cstdint>

#include <lockstep/models/program/graph.h>

namespace lockstep::program {

struct EvalForms {
  int64_t batch_norms = 0;  // by running averages
  int64_t dropouts = 0;     // that drop nothing, also those within recurrent layers
};

// Counts those of the graph and its regions.
EvalForms eval_forms_of(const Graph& graph);

}  // namespace lockstep::program
