// Facts about operations that their schemas do not tell.
#pragma once

#include <map>
#include <string>

#include <lockstep/models/program/graph.h>
#include <lockstep/models/program/resolve.h>

namespace lockstep::program {

// Notes whether the node draws random numbers, depends on the mode, and can be captured.
void note_properties(const ReadyNode& node, Resolved& all);

// An operation that makes a tensor without being told a dtype gives torch's default type, which Python's
// torch.set_default_dtype() may have changed: the file says which one it was. Where that is float_type, the
// module's type is taken. tensors: of the graph. Throws FormatError for another operation whose result has a
// default type that is not float.
void fix_default_type(const Node& node, ReadyNode& ready, const std::map<std::string, TensorMeta>& tensors,
                      torch::ScalarType float_type);

}  // namespace lockstep::program
