// Finds the operations that change the memory that a graph is given.
#pragma once

#include <vector>

#include <lockstep/models/program/graph.h>

namespace lockstep::program {

// An operation that changes an input of the graph, perhaps through a view of it or in a region.
struct InputChange {
  enum class Kind {
    kElements,  // of its memory; a batch norm's averages, too
    kGradient   // requires_grad_() and detach_(), which change the tensor itself
  };

  const Node* node = nullptr;
  const GraphInput* input = nullptr;
  Kind kind = Kind::kElements;
};

// In the order of the operations; pointers into `exported`. An operation that may return a view of its
// arguments counts as one that does. Throws FormatError, with the operation's place, unless each value is
// defined once and before its use.
std::vector<InputChange> input_changes(const ExportedGraph& exported);

// True for "num_batches_tracked" of a module, such as "layer1.0.bn1.num_batches_tracked".
bool is_batch_counter(const std::string& buffer);

}  // namespace lockstep::program
