// Checks what holds for every graph that torch exports.
#pragma once

#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// Throws FormatError unless each value is defined once and before its use, each input that is a tensor has a
// dtype, and no operation changes an input of the user (the batch's tensors, which others may read), a
// constant (which is not part of the state), or whether one of these or a parameter requires a gradient.
void check_graph(const ExportedGraph& exported);

}  // namespace lockstep::program
