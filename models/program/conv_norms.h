// Finds in a graph what lockstep's kernels compute together: a convolution, a batch norm by the batch,
// perhaps an addition, and ReLU.
#pragma once

#include <cstdint>
#include <vector>

#include <lockstep/models/program/batch_norm_uses.h>
#include <lockstep/models/program/graph.h>
#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// Fills ReadyGraph::conv_norms, and what its nodes and outputs say about them. metas: of the slots, null for
// those that are no tensors. Returns how many there are.
int64_t find_conv_norms(ReadyGraph& graph, const std::vector<const TensorMeta*>& metas,
                        const SourceOf& source_of);

}  // namespace lockstep::program
