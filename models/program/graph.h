// The JSON of an exported program (torch/_export/serde/schema.py, major 8) as plain structs. No torch here:
// values that only torch knows keep the file's numbers until the interpreter resolves them.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep::program {

// The serialiser's numbers, which are not c10's.
enum class ElementType : int {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kComplex32 = 9,
  kComplex64 = 10,
  kComplex128 = 11,
  kBool = 12,
  kBfloat16 = 13,
};
inline bool is_whole(ElementType type) { return type <= ElementType::kInt64 || type == ElementType::kBool; }

enum class MemoryFormat : int { kContiguous = 1, kChannelsLast = 2, kChannelsLast3d = 3, kPreserve = 4 };

// A size of a tensor: a number, a symbol such as "s77", or an expression of symbols, as sympy prints it.
struct Size {
  int64_t number = -1;          // -1: not fixed
  std::string symbol = {};      // of a size that is a symbol alone
  std::string expression = {};  // of any other that is not fixed
  bool operator==(const Size&) const = default;
};

struct TensorMeta {
  ElementType dtype = ElementType::kFloat32;
  std::vector<Size> sizes = {}, strides = {};
  Size storage_offset = {.number = 0};
  bool requires_grad = false;
  bool operator==(const TensorMeta&) const = default;
};

struct None {
  bool operator==(const None&) const = default;
};
struct ValueName {  // a value that the graph computes or takes: a tensor or a number
  std::string name;
  bool operator==(const ValueName&) const = default;
};
struct DeviceName {  // "cpu" or "cuda": a program's constants follow the module's device, so it is only
                     // checked
  std::string type;
  bool operator==(const DeviceName&) const = default;
};
struct Strided {  // the one layout that is accepted
  bool operator==(const Strided&) const = default;
};
struct Graph;

// An integer that is known, or the name of one that is computed.
using IntOrName = std::variant<int64_t, ValueName>;

// An argument of an operation. Lists of None or a tensor are std::optional.
using Argument = std::variant<None, ValueName, std::vector<ValueName>, std::vector<std::optional<ValueName>>,
                              int64_t, std::vector<int64_t>, std::vector<IntOrName>, double,
                              std::vector<double>, bool, std::vector<bool>, std::complex<double>, std::string,
                              ElementType, MemoryFormat, Strided, DeviceName, std::shared_ptr<const Graph>>;

struct NamedArgument {
  std::string name;  // of the operation's schema; empty for size arithmetic and regions
  Argument value;
};

// A result of an operation: one value, a list of them, or None. None is one empty name.
struct Result {
  std::vector<std::string> names;
  bool is_list = false;
};

struct Node {
  std::string target;  // "torch.ops.aten.linear.default", "_operator.mul"
  std::vector<NamedArgument> arguments;
  std::vector<Result> results;
  std::string place;   // the lines of Python it came from, as Python's traceback; may be empty
  std::string module;  // the innermost module that computed it, such as "blocks.0.norm"; may be empty
};

// The argument of this name as a T, or nullptr where there is none or it is of another kind.
template <typename T>
const T* argument_of(const Node& node, std::string_view name) {
  const auto found = std::ranges::find(node.arguments, name, &NamedArgument::name);
  return found == node.arguments.end() ? nullptr : std::get_if<T>(&found->value);
}

inline bool is_false(const Node& node, std::string_view argument) {
  const auto* truth = argument_of<bool>(node, argument);
  return truth && !*truth;
}

// Values are defined before they are used, and each once. A region (an Argument of
// wrap_with_set_grad_enabled) sees its own values only.
struct Graph {
  std::vector<std::string> inputs;            // names of values, in order
  std::vector<Node> nodes;                    // in order; assertions about dtypes and devices are left out
  std::vector<Argument> outputs;              // None, ValueName, or a constant: a number, truth value or text
  std::map<std::string, TensorMeta> tensors;  // of each value that is a tensor
};

// Where an input of the graph comes from.
enum class InputKind { kParameter, kBuffer, kPassingBuffer /* not persistent */, kConstant, kUser, kFixed };
struct GraphInput {
  InputKind kind = InputKind::kUser;
  std::string name;   // of the weight or constant: "fc.weight"; of a user's input: as forward()'s argument
  std::string value;  // its name in the graph
  Argument fixed = None{};  // kFixed: an argument of forward() that was no tensor when it was exported
};

struct GraphOutput {
  std::string name;  // a key of the dict, or "output", "output.0", "output.1.k"
  Argument value;
};

struct Range {
  int64_t least = 0, most = INT64_MAX;  // null in the file: no bound
};

// One graph of the file, such as "model" or "eval".
struct ExportedGraph {
  std::string torch_version;  // "2.15.0+cpu"
  int schema_major = 0, schema_minor = 0;
  Graph graph;
  std::vector<GraphInput> inputs;       // as many as graph.inputs
  std::vector<GraphOutput> outputs;     // as many as graph.outputs: what forward() returns, flattened
  std::map<std::string, Range> ranges;  // of symbols
  std::vector<std::string> guards;      // Python's further conditions, such as "L['x'].size()[0] != 1"
};

// A tensor of the file.
struct StoredTensor {
  std::string name;    // "fc.weight"
  std::string record;  // "data/weights/weight_3"; tied weights have one
  bool is_parameter = false;
  TensorMeta meta;  // sizes, strides and offset are numbers, and lie in the record's bytes
};

// The export script's comparison of a graph with the Python module, for so many rows.
enum class RowOutcome { kEqual, kClose, kDifferent, kRefused };
struct RowReport {
  std::string graph;  // "model", "eval"
  int64_t rows = 0;
  RowOutcome outcome = RowOutcome::kEqual;
  std::string text;  // the difference, or Python's error
};

}  // namespace lockstep::program
