#include <lockstep/models/program/read_graph.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/python_line.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

std::string metadata(const Json& node, std::string_view key) {
  const auto* all = node.find("metadata");
  const auto* value = all ? all->find(key) : nullptr;
  return value ? value->text() : std::string();
}

// Returns the path of the last entry of "key,path,class;key,path,class".
std::string innermost_module(std::string_view stack) {
  const auto last = stack.substr(stack.rfind(';') + 1);
  const auto first = last.find(','), second = last.find(',', first == last.npos ? first : first + 1);
  if (first == last.npos || second == last.npos) return {};
  auto path = last.substr(first + 1, second - first - 1);
  constexpr std::string_view kSelf = "L['self'].", kNone = "_empty_nn_module_stack_from_metadata_hook";
  if (path == kNone) return {};
  if (path.starts_with(kSelf)) path.remove_prefix(kSelf.size());
  require_few_modules(std::string(path), "has an operation");
  return std::string(path);
}

Result read_result(const Json& json) {
  const auto [kind, value] = json.only();
  if (kind == "as_tensor") return {.names = {value.at("name").text()}};
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
    return {.names = {value.at("as_name").text()}};
  }
  if (kind == "as_none") return {.names = {""}};
  if (kind != "as_tensors")
    throw FormatError(fmt::format("has a result {}, which lockstep does not support", in_quotes(kind)));
  Result list{.names = {}, .is_list = true};
  for (const auto& element : value.list()) list.names.push_back(element.at("name").text());
  return list;
}

NamedArgument read_named(const Json& json) {
  const auto& name = json.at("name").text();
  try {
    return {name, read_argument(json.at("arg"))};
  } catch (const FormatError& error) {
    if (name.empty()) throw;
    throw FormatError(fmt::format("{} (argument {})", error.what(), in_quotes(name)), error.hint());
  }
}

// (bool, Graph, values...), as many as the graph has inputs.
void check_region_arguments(const Node& node) {
  const auto& arguments = node.arguments;
  const auto* graph =
      arguments.size() < 2 ? nullptr : std::get_if<std::shared_ptr<const Graph>>(&arguments[1].value);
  if (!graph || !std::holds_alternative<bool>(arguments[0].value)) throw FormatError("has no body");
  if ((*graph)->inputs.size() != arguments.size() - 2) {
    throw FormatError(
        fmt::format("gives {} values to a body of {}", arguments.size() - 2, (*graph)->inputs.size()));
  }
  for (size_t i = 2; i < arguments.size(); ++i) {
    if (!std::holds_alternative<ValueName>(arguments[i].value))
      throw FormatError("gives a body what is no value");
  }
}

bool has_region(const Node& node) {
  for (const auto& argument : node.arguments) {
    if (std::holds_alternative<std::shared_ptr<const Graph>>(argument.value)) return true;
  }
  return false;
}

// Returns the node's lines of Python. Regions have none of their own: those of the first operation in them.
std::string place_of(const Json& node) {
  auto place = metadata(node, "stack_trace");
  if (!place.empty()) return place;
  for (const auto& input : node.at("inputs").list()) {
    const auto* graph = input.at("arg").find("as_graph");
    if (!graph) continue;
    for (const auto& inner : graph->at("graph").at("nodes").list()) {
      place = metadata(inner, "stack_trace");
      if (!place.empty()) return place;
    }
  }
  return place;
}

// Reads what is inside, too, but nothing of an assertion.
OperationKind read_node(const Json& json, Node& node) {
  const auto kind = operation_kind(node.target);
  if (kind == OperationKind::kAssertion) return kind;
  for (const auto& input : json.at("inputs").list()) node.arguments.push_back(read_named(input));
  for (const auto& output : json.at("outputs").list()) node.results.push_back(read_result(output));
  if (kind == OperationKind::kRegion) {
    check_region_arguments(node);
  } else if (has_region(node)) {
    throw FormatError("takes a graph");
  }
  return kind;
}

}  // namespace

void require_few_modules(const std::string& path, const std::string& what) {
  constexpr int64_t kMost = 100;
  const auto modules = std::ranges::count(path, '.');
  if (modules <= kMost) return;
  throw FormatError(fmt::format("{} {} within {} modules, and lockstep takes {}", what,
                                in_quotes(path.substr(0, 40) + "..."), modules, kMost));
}

PlacedError placed(const FormatError& error, const Node& node) {
  std::string text = error.what();
  const auto target = in_quotes(node.target), line = python_line(node.place);
  if (text.find(target) == text.npos) text += ", in operation " + target;
  if (!line.empty()) text += fmt::format(" ({})", line);
  return PlacedError(text, error.hint());
}

Graph read_graph(const Json& json, std::vector<std::string> inputs) {
  Graph graph;
  graph.inputs = std::move(inputs);
  for (const auto& [name, meta] : json.at("tensor_values").object()) {
    try {
      graph.tensors.emplace(name, read_tensor_meta(meta));
    } catch (const FormatError& error) {
      throw FormatError(fmt::format("{}, value {}", error.what(), in_quotes(name)), error.hint());
    }
  }
  for (const auto& entry : json.at("nodes").list()) {
    Node node{.target = entry.at("target").text(),
              .arguments = {},
              .results = {},
              .place = place_of(entry),
              .module = innermost_module(metadata(entry, "nn_module_stack"))};
    try {
      if (read_node(entry, node) != OperationKind::kAssertion) graph.nodes.push_back(std::move(node));
    } catch (const PlacedError&) {
      throw;
    } catch (const FormatError& error) {
      throw placed(error, node);
    }
  }
  for (const auto& output : json.at("outputs").list()) graph.outputs.push_back(read_argument(output));
  return graph;
}

}  // namespace lockstep::program
