// Reads a graph, and the parts that it shares with signatures and weights, from JSON. All throw FormatError.
//
// Fields of the schema that are not read, because nothing depends on them: the kinds of arguments, devices
// and hints of values, sym_int_values, sym_bool_values and sym_float_values (values are computed again),
// names of nodes, torch_fn, is_single_tensor_return and is_hop_single_tensor_return (results are lists here),
// opset_version. Fields that the schema does not have are ignored: a minor version that is accepted has none.
#pragma once

#include <string>
#include <vector>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/graph.h>
#include <lockstep/models/program/json_value.h>

namespace lockstep::program {

Size read_size(const Json& json);
TensorMeta read_tensor_meta(const Json& json);
Argument read_argument(const Json& json);  // a union such as {"as_int": 3}

// Reads a graph whose inputs have these names. Checks operations against the allow-list (operations.h); the
// error has the operation's line of Python.
Graph read_graph(const Json& json, std::vector<std::string> inputs);

// The error with the node's operation and line of Python.
PlacedError placed(const FormatError& error, const Node& node);

// Each part of a path but the last one is a module in those before it. Throws for more than 100; `what`
// begins the message.
void require_few_modules(const std::string& path, const std::string& what);

// The name of a value that is a tensor. Throws for others; `what` begins the message.
std::string tensor_name(const Argument& argument, const std::string& what);

}  // namespace lockstep::program
