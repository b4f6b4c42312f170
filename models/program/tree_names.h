// Names of a function's arguments and results.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::program {

// The fields of named tuples, by the type's name, as treespec_namedtuple_fields has them.
using NamedTuples = std::map<std::string, std::vector<std::string>>;

// Returns the names of the leaves of an out_spec (torch.utils._pytree.treespec_dumps): "output" of a single
// one, "output.0" of a tuple or list, "key" of a dict or a named tuple; further levels are appended with a
// dot: "key.1". Throws FormatError, also when two leaves have one name.
std::vector<std::string> output_names(std::string_view spec, const NamedTuples& named_tuples);

// Returns the names of the leaves of an in_spec, ((args...), {kwargs...}): "x", "x.0", "x.key". `arguments`
// are forward()'s; without them, positional ones are called "input.0", ... Throws as output_names().
std::vector<std::string> input_names(std::string_view spec, const std::vector<std::string>& arguments,
                                     const NamedTuples& named_tuples);

}  // namespace lockstep::program
