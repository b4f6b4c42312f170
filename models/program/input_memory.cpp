#include <lockstep/models/program/input_memory.h>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>

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

// The inputs whose memory a value may share.
struct Shared {
  std::vector<const GraphInput*> inputs = {};
  bool is_other_tensor = false;  // it has a requires_grad of its own

  void add(const Shared& other) {
    if (other.inputs.empty()) return;
    is_other_tensor = other.is_other_tensor && (inputs.empty() || is_other_tensor);
    for (const auto* input : other.inputs) {
      if (std::ranges::find(inputs, input) == inputs.end()) inputs.push_back(input);
    }
  }
};

// The values that are defined so far.
class Values {
 public:
  void define(const std::string& name, Shared shared) {
    if (!shared_.emplace(name, std::move(shared)).second)
      throw FormatError(fmt::format("has two values {}", in_quotes(name)));
  }

  const Shared& of(const std::string& name) const {
    const auto found = shared_.find(name);
    if (found == shared_.end())
      throw FormatError(fmt::format("uses the value {} before it is computed", in_quotes(name)));
    return found->second;
  }

  // A list of several shares nothing: no operation changes its elements, or returns one view of all.
  Shared use(const Argument& argument) const {
    const Shared* only = nullptr;
    size_t count = 0;
    for_each_name(argument, [&](const std::string& name) {
      only = &of(name);
      ++count;
    });
    return count == 1 ? *only : Shared{};
  }

 private:
  std::unordered_map<std::string_view, Shared> shared_;
};

bool changes(const Node& node, std::string_view base, size_t i) {
  const auto& name = node.arguments[i].name;
  if (name == "out" || (base == "rrelu_with_noise" && name == "noise")) return true;
  if (base == "batch_norm" || base == "instance_norm") {  // although their schemas do not say so
    const bool average = name == "running_mean" || name == "running_var";
    return average && !is_false(node, base == "batch_norm" ? "training" : "use_input_stats");
  }
  return changes_self(base) && (i == 0 || name == "self");
}

// True for an operation that may return what it is given, and makes a new tensor all the same.
bool copies(const Node& node, std::string_view base, const Graph& graph) {
  if (base != "to" && base != "type_as") return false;
  const auto* self = argument_of<ValueName>(node, "self");
  if (!self || node.results.empty() || node.results[0].names.empty()) return false;
  const auto from = graph.tensors.find(self->name), to = graph.tensors.find(node.results[0].names[0]);
  // One floating-point type may become another one where the precision asks for it.
  return from != graph.tensors.end() && to != graph.tensors.end() &&
         is_whole(from->second.dtype) != is_whole(to->second.dtype);
}

bool shares(std::string_view base, size_t i, const std::string& name) {
  if (changes_self(base) || base == "requires_grad_") return i == 0 || name == "self";
  return may_be_view(base) && name != "other";  // another tensor's sizes or dtype
}

class Walk {
 public:
  void add_nodes(const Graph& graph, Values& values) {
    for (const auto& node : graph.nodes) {
      try {
        add_node(node, graph, values);
      } catch (const PlacedError&) {
        throw;
      } catch (const FormatError& error) {
        throw placed(error, node);
      }
    }
  }

  std::vector<InputChange> found;

 private:
  void add_node(const Node& node, const Graph& graph, Values& values) {
    if (node.arguments.size() > 1 &&
        std::holds_alternative<std::shared_ptr<const Graph>>(node.arguments[1].value)) {
      return add_region(node, values);
    }
    const auto name = torch_name(node.target);
    Shared result;
    const std::vector<ValueName>* elements = nullptr;  // each result may be a view of the one in its place
    for (size_t i = 0; i < node.arguments.size(); ++i) {
      const auto shared = values.use(node.arguments[i].value);
      if (!name) continue;
      note(node, name->base, i, shared);
      if (!shares(name->base, i, node.arguments[i].name) || copies(node, name->base, graph)) continue;
      result.add(shared);
      const auto* list = std::get_if<std::vector<ValueName>>(&node.arguments[i].value);
      if (list && list->size() > 1) elements = list;
    }
    if (name && name->base == "detach") result.is_other_tensor = true;
    define_all(node, values, [&](size_t i, size_t j) {
      const bool in_place = elements && node.results[i].is_list && j < elements->size();
      return in_place ? values.of((*elements)[j].name) : result;
    });
  }

  void note(const Node& node, std::string_view base, size_t i, const Shared& shared) {
    const bool gradient = base == "requires_grad_" || base == "detach_";
    if (gradient ? i > 0 || shared.is_other_tensor : !changes(node, base, i)) return;
    for (const auto* input : shared.inputs) {
      found.push_back({&node, input, gradient ? InputChange::Kind::kGradient : InputChange::Kind::kElements});
    }
  }

  void add_region(const Node& node, Values& values) {
    const auto& body = *std::get<std::shared_ptr<const Graph>>(node.arguments[1].value);
    Values inner;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      inner.define(body.inputs[i], values.use(node.arguments[i + 2].value));
    }
    add_nodes(body, inner);
    std::vector<Shared> outputs;
    for (const auto& output : body.outputs) outputs.push_back(inner.use(output));
    define_all(node, values, [&](size_t i, size_t) { return i < outputs.size() ? outputs[i] : Shared{}; });
  }

  template <class SharedOf>
  static void define_all(const Node& node, Values& values, const SharedOf& shared_of) {
    for (size_t i = 0; i < node.results.size(); ++i) {
      const auto& names = node.results[i].names;
      for (size_t j = 0; j < names.size(); ++j) {
        if (!names[j].empty()) values.define(names[j], shared_of(i, j));
      }
    }
  }
};

}  // namespace

std::vector<InputChange> input_changes(const ExportedGraph& exported) {
  Walk walk;
  Values values;
  for (const auto& input : exported.inputs) {
    values.define(input.value, {.inputs = {&input}});
  }
  walk.add_nodes(exported.graph, values);
  for (const auto& output : exported.graph.outputs) values.use(output);
  return std::move(walk.found);
}

bool is_batch_counter(const std::string& buffer) {
  constexpr std::string_view kCounter = "num_batches_tracked";
  return buffer == kCounter || buffer.ends_with(fmt::format(".{}", kCounter));
}

}  // namespace lockstep::program
