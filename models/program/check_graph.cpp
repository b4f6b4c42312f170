#include <lockstep/models/program/check_graph.h>

#include <fmt/format.h>

#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

// Calls with each name that the argument holds.
template <class Use>
void for_each_name(const Argument& argument, const Use& use) {
  std::visit(
      [&](const auto& value) {
        using T = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<T, ValueName>) {
          use(value.name);
        } else if constexpr (std::is_same_v<T, std::vector<ValueName>>) {
          for (const auto& element : value) use(element.name);
        } else if constexpr (std::is_same_v<T, std::vector<std::optional<ValueName>>>) {
          for (const auto& element : value) {
            if (element) use(element->name);
          }
        } else if constexpr (std::is_same_v<T, std::vector<IntOrName>>) {
          for (const auto& element : value) {
            if (const auto* name = std::get_if<ValueName>(&element)) use(name->name);
          }
        }
      },
      argument);
}

// The values that are defined so far, each with the input of the user whose memory it may share, or null.
class Values {
 public:
  void define(const std::string& name, const std::string* shared) {
    if (!shared_.emplace(name, shared).second)
      throw FormatError(fmt::format("has two values {}", in_quotes(name)));
  }
  const std::string* use(const std::string& name) const {
    const auto found = shared_.find(name);
    if (found == shared_.end()) {
      throw FormatError(fmt::format("uses the value {} before it is computed", in_quotes(name)));
    }
    return found->second;
  }

 private:
  std::unordered_map<std::string_view, const std::string*> shared_;
};

// The user's input whose memory an argument may share, or null.
const std::string* check_argument(const Argument& argument, const Values& values) {
  const std::string* shared = nullptr;
  for_each_name(argument, [&](const std::string& name) {
    if (const auto* input = values.use(name)) shared = input;
  });
  return shared;
}

void check_nodes(const Graph& graph, Values& values);

// Returns the user's input whose memory one of the region's results may share.
const std::string* check_region(const Node& node, const Values& values) {
  const auto& body = *std::get<std::shared_ptr<const Graph>>(node.arguments[1].value);
  Values inner;
  for (size_t i = 0; i < body.inputs.size(); ++i) {
    inner.define(body.inputs[i], check_argument(node.arguments[i + 2].value, values));
  }
  check_nodes(body, inner);
  const std::string* shared = nullptr;
  for (const auto& output : body.outputs) {
    if (const auto* input = check_argument(output, inner)) shared = input;
  }
  return shared;
}

// Returns the user's input whose memory the results may share.
const std::string* check_node(const Node& node, const Values& values) {
  const std::string *first = nullptr, *out = nullptr;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const auto* shared = check_argument(node.arguments[i].value, values);
    if (i == 0) first = shared;
    if (node.arguments[i].name == "out") out = shared;
  }
  if (node.arguments.size() > 1 &&
      std::holds_alternative<std::shared_ptr<const Graph>>(node.arguments[1].value)) {
    return check_region(node, values);
  }
  const auto name = torch_name(node.target);
  if (!name) return nullptr;
  if (const auto* changed = changes_self(name->base) ? first : out) {
    throw FormatError(fmt::format("changes its input {}", in_quotes(*changed)),
                      "let forward() change a copy: x = x.clone()");
  }
  return may_be_view(name->base) ? first : nullptr;
}

void check_nodes(const Graph& graph, Values& values) {
  for (const auto& node : graph.nodes) {
    try {
      const auto* shared = check_node(node, values);
      for (const auto& result : node.results) {
        for (const auto& name : result.names) {
          if (!name.empty()) values.define(name, shared);
        }
      }
    } catch (const PlacedError&) {
      throw;
    } catch (const FormatError& error) {
      throw placed(error, node);
    }
  }
}

void check_dtype(const Graph& graph, const std::string& value, const char* what) {
  if (!graph.tensors.contains(value))
    throw FormatError(fmt::format("has an {} {} without a dtype", what, in_quotes(value)));
}

}  // namespace

void check_graph(const ExportedGraph& exported) {
  const auto& graph = exported.graph;
  Values values;
  for (const auto& input : exported.inputs) {
    values.define(input.value, input.kind == InputKind::kUser ? &input.name : nullptr);
    if (input.kind != InputKind::kFixed) check_dtype(graph, input.value, "input");
  }
  check_nodes(graph, values);
  for (const auto& output : graph.outputs) check_argument(output, values);
}

}  // namespace lockstep::program
