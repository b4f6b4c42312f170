#include <lockstep/models/program/resolve.h>

#include <ATen/core/enum_tag.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <lockstep/models/program/convert_argument.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/python_line.h>

namespace lockstep::program {
namespace {

constexpr std::string_view kCounter = ".num_batches_tracked";

using Kind = ReadyArgument::Kind;

// A tensor or a number that the graph computes or is given.
bool is_value(const ReadyArgument& argument) {
  return argument.kind == Kind::kValue || argument.kind == Kind::kWrapped;
}

bool is_constant(const ReadyArgument& argument, bool value) {
  return argument.kind == Kind::kConstant && argument.constant.isBool() &&
         argument.constant.toBool() == value;
}

bool is_zero(const ReadyArgument& argument) {
  if (argument.kind != Kind::kConstant) return false;
  const auto& number = argument.constant;
  return (number.isDouble() && number.toDouble() == 0) || (number.isInt() && number.toInt() == 0);
}

// Resolves a graph, or the body of a region, whose values are its own.
class Resolver {
 public:
  Resolver(const Graph& graph, torch::ScalarType float_type, Resolved& all)
      : graph_(graph), float_type_(float_type), all_(all), slot_of_([this](const std::string& name) {
          const auto found = slots_.find(name);
          if (found == slots_.end()) throw FormatError(fmt::format("uses '{}' before it is computed", name));
          return found->second;
        }) {}

  // sources: of the inputs, where these are known, else null.
  std::shared_ptr<const ReadyGraph> resolve(const std::vector<const GraphInput*>& sources) {
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      ready_->inputs.push_back(new_slot(graph_.inputs[i], i < sources.size() ? sources[i] : nullptr));
    }
    for (const auto& node : graph_.nodes) add(node);
    for (const auto& output : graph_.outputs) ready_->outputs.push_back(convert_value(output, slot_of_));
    find_last_uses();
    return ready_;
  }

 private:
  int new_slot(const std::string& name, const GraphInput* source = nullptr) {
    const int slot = ready_->slots++;
    if (source) sources_.emplace(slot, source);
    if (!slots_.emplace(name, slot).second) throw FormatError(fmt::format("has two values named '{}'", name));
    return slot;
  }

  void add(const Node& node) {
    ReadyNode ready{.name = name_of(node.target), .line = python_line(node.place)};
    try {
      const auto kind = operation_kind(node.target);
      if (kind == OperationKind::kAssertion) return;
      if (kind == OperationKind::kTorch) add_operation(node, ready);
      if (kind == OperationKind::kArithmetic) add_arithmetic(node, ready);
      if (kind == OperationKind::kRegion) add_region(node, ready);
      add_results(node, ready);
    } catch (const FormatError& error) {
      const bool named = std::string_view(error.what()).find(", operation ") != std::string_view::npos;
      if (named) throw;  // one inside a region
      const auto line = ready.line.empty() ? "" : fmt::format(" (line of Python: {})", ready.line);
      throw FormatError(fmt::format("{}, operation {}{}", error.what(), ready.name, line), error.hint());
    }
    ready_->nodes.push_back(std::move(ready));
  }

  static std::string name_of(const std::string& target) {
    const auto name = torch_name(target);
    return name ? fmt::format("aten::{}", name->base) : target;
  }

  void add_operation(const Node& node, ReadyNode& ready) {
    const auto name = torch_name(node.target);
    if (!name) throw FormatError("calls what is no operation of torch");
    const std::string overload(name->overload == "default" ? "" : name->overload);
    ready.operation =
        c10::Dispatcher::singleton().findSchema({fmt::format("aten::{}", name->base), overload});
    if (!ready.operation) throw FormatError("calls an operation that this LibTorch does not have");
    convert_arguments(node, ready);
    note_properties(ready);
    note_norm(node, ready);
    constexpr std::array kRnns = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
    ready.is_rnn = std::ranges::find(kRnns, name->base) != kRnns.end() && overload == "input";
    ++all_.operations[ready.name];
  }

  void convert_arguments(const Node& node, ReadyNode& ready) {
    std::unordered_map<std::string_view, const Argument*> given;
    for (const auto& argument : node.arguments) {
      if (!given.emplace(argument.name, &argument.value).second) {
        throw FormatError(fmt::format("gives the argument '{}' twice", argument.name));
      }
    }
    size_t used = 0;
    for (const auto& wanted : ready.operation->schema().arguments()) {
      const auto found = given.find(wanted.name());
      used += found != given.end();
      ready.arguments.push_back(found == given.end()
                                    ? default_of(wanted)
                                    : convert_argument(*found->second, wanted, float_type_, slot_of_));
      auto& argument = ready.arguments.back();
      // The exporter turns cuDNN off while it traces, so the file always says false.
      if (wanted.name() == "cudnn_enabled" || wanted.name() == "cudnn_enable") argument = {.constant = true};
      require_own_target(wanted, argument);
    }
    if (used != given.size()) {
      throw FormatError(
          fmt::format("gives an argument that is not in the schema {}", toString(ready.operation->schema())));
    }
    follow_float_type(ready);
  }

  static ReadyArgument default_of(const c10::Argument& wanted) {
    if (!wanted.default_value())
      throw FormatError(fmt::format("does not give the argument '{}'", wanted.name()));
    return {.constant = *wanted.default_value()};
  }

  // A number that stands for a tensor is shared by all calls, and a constant of the program is not saved.
  void require_own_target(const c10::Argument& wanted, const ReadyArgument& argument) {
    if (!wanted.alias_info() || !wanted.alias_info()->isWrite()) return;
    if (!is_value(argument))
      throw FormatError(fmt::format("changes '{}', which is no tensor", wanted.name()));
    require_state(argument);
    const auto name = source_of(argument);
    all_.writes_buffers = all_.writes_buffers || (!name.empty() && !name.ends_with(kCounter));
  }

  void require_state(const ReadyArgument& target) const {
    const auto source = sources_.find(target.slots[0]);
    if (source == sources_.end() || source->second->kind != InputKind::kConstant) return;
    throw FormatError(
        fmt::format("changes the constant {}, which is not part of the model's state", source->second->name),
        "register it as a buffer in Python: self.register_buffer(...)");
  }

  // Without a dtype these give torch's default type, float.
  void follow_float_type(ReadyNode& ready) const {
    constexpr std::array kAlways = {"aten::zeros", "aten::ones", "aten::empty",    "aten::rand",
                                    "aten::randn", "aten::eye",  "aten::linspace", "aten::logspace"};
    constexpr std::array kOfNumbers = {"aten::full", "aten::arange", "aten::scalar_tensor"};
    const auto& arguments = ready.operation->schema().arguments();
    const bool real = std::ranges::any_of(ready.arguments, [](const auto& argument) {
      return argument.kind == Kind::kConstant && argument.constant.isDouble();
    });
    const bool follows = std::ranges::find(kAlways, ready.name) != kAlways.end() ||
                         (real && std::ranges::find(kOfNumbers, ready.name) != kOfNumbers.end());
    if (!follows || float_type_ != torch::kFloat32) return;
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto& argument = ready.arguments[i];
      const bool is_default = argument.kind == Kind::kConstant && argument.constant.isNone();
      if (arguments[i].name() == "dtype" && is_default) argument.kind = Kind::kFloatType;
    }
  }

  // Returns the argument of this name, or null.
  static const ReadyArgument* find(const ReadyNode& node, std::string_view name) {
    const auto& arguments = node.operation->schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == name) return &node.arguments[i];
    }
    return nullptr;
  }

  void note_properties(const ReadyNode& node) {
    const auto is = [&](const char* name, const auto& test) {
      const auto* argument = find(node, name);
      return argument && test(*argument);
    };
    const auto is_false = [](const ReadyArgument& argument) { return is_constant(argument, false); };
    bool mode = false, off = false;
    for (const char* name : {"training", "train", "use_input_stats"}) {
      mode = mode || is(name, [&](const auto& argument) { return !is_false(argument); });
      off = off || is(name, is_false);
    }
    for (const char* name : {"dropout_p", "dropout"}) {
      mode = mode || is(name, [&](const auto& argument) {
               return !is_zero(argument) && argument.constant.isDouble();
             });
      off = off || is(name, is_zero);
    }
    // Without running averages it computes the same in both modes.
    mode = mode && !is("running_mean", [](const auto& argument) { return argument.kind == Kind::kConstant; });
    const bool dropout = node.name.find("dropout") != std::string::npos;
    off = off || (dropout && is("p", is_zero));
    const bool random = !off && node.operation->hasTag(at::Tag::nondeterministic_seeded);
    const bool rnn_without_dropout =
        is("dropout", is_zero) && is("num_layers", [](const auto&) { return true; });
    all_.random = all_.random || random;
    all_.depends_on_mode =
        all_.depends_on_mode || random || (mode && !rnn_without_dropout && !(dropout && off));
    all_.captures = all_.captures && !node.operation->hasTag(at::Tag::data_dependent_output) &&
                    !node.operation->hasTag(at::Tag::dynamic_output_shape);
  }

  // The weight or buffer that an argument is, or an empty name.
  std::string source_of(const ReadyArgument& argument) const {
    if (!is_value(argument)) return {};
    const auto source = sources_.find(argument.slots[0]);
    return source == sources_.end() ? std::string() : source->second->name;
  }

  // Batch norms by the batch, and the counters of their batches.
  void note_norm(const Node& node, ReadyNode& ready) {
    if (ready.name == "aten::add_") {
      const auto name = source_of(ready.arguments[0]);
      if (name.ends_with(kCounter))
        counters_.emplace_back(ready_->nodes.size(), name.substr(0, name.size() - kCounter.size()));
      return;
    }
    if (ready.name != "aten::batch_norm" || is_constant(ready.arguments[5], false)) return;
    const auto& momentum = ready.arguments[6].constant;
    const auto& eps = ready.arguments[7].constant;
    if (!momentum.isDouble() || !eps.isDouble())
      throw FormatError("computes the momentum or eps of a batch norm");
    for (const size_t average : {3, 4}) {  // it changes them, although its schema does not say so
      if (is_value(ready.arguments[average])) require_state(ready.arguments[average]);
    }
    const auto* X = std::get_if<ValueName>(&node.arguments.front().value);
    const auto meta = X ? graph_.tensors.find(X->name) : graph_.tensors.end();
    BatchNormUse norm{
        .place = ready.line,
        .dimensions = meta == graph_.tensors.end() ? 0 : static_cast<int64_t>(meta->second.sizes.size()),
        .momentum = momentum.toDouble(),
        .eps = eps.toDouble(),
        .affine = is_value(ready.arguments[1]),
        .averages = is_value(ready.arguments[3])};
    find_module(node, ready, norm);
    ready.norm = static_cast<int>(all_.norms.size());
    all_.norms.push_back(std::move(norm));
  }

  // A module's tensors have its name before theirs. One without tensors is where the operation stands.
  void find_module(const Node& node, const ReadyNode& ready, BatchNormUse& norm) const {
    constexpr std::array<const char*, 5> kNames = {"", "weight", "bias", "running_mean", "running_var"};
    norm.module = node.module;
    norm.matched = true;
    for (size_t i = 1; i < kNames.size(); ++i) {
      if (!is_value(ready.arguments[i])) continue;
      const auto name = source_of(ready.arguments[i]);
      const auto dot = name.rfind('.');
      norm.module = dot == name.npos ? std::string() : name.substr(0, dot);
      break;
    }
    for (size_t i = 1; i < kNames.size(); ++i) {
      if (!is_value(ready.arguments[i])) continue;
      norm.matched = norm.matched && source_of(ready.arguments[i]) == norm.module + "." + kNames[i];
    }
    norm.matched = norm.matched && !norm.module.empty();
  }

  void add_arithmetic(const Node& node, ReadyNode& ready) {
    ready.arithmetic = size_operation(node.target, node.arguments.size());
    if (!ready.arithmetic)
      throw FormatError(fmt::format("calls it with {} arguments", node.arguments.size()));
    for (const auto& argument : node.arguments)
      ready.arguments.push_back(convert_value(argument.value, slot_of_));
    if (ready.arguments.size() != node.arguments.size() || node.results.size() != 1)
      throw FormatError("has no single result");
  }

  void add_region(const Node& node, ReadyNode& ready) {
    const auto* enabled = node.arguments.size() < 2 ? nullptr : std::get_if<bool>(&node.arguments[0].value);
    const auto* body =
        enabled ? std::get_if<std::shared_ptr<const Graph>>(&node.arguments[1].value) : nullptr;
    if (!body || !*body) throw FormatError("has no body");
    ready.grad_enabled = *enabled;
    std::vector<const GraphInput*> sources;
    for (size_t i = 2; i < node.arguments.size(); ++i) {
      ready.arguments.push_back(convert_value(node.arguments[i].value, slot_of_));
      const auto source =
          sources_.find(ready.arguments.back().slots.empty() ? -1 : ready.arguments.back().slots[0]);
      sources.push_back(source == sources_.end() ? nullptr : source->second);
    }
    if (sources.size() != (*body)->inputs.size())
      throw FormatError("gives its body another number of values");
    Resolver inner(**body, float_type_, all_);
    ready.body = inner.resolve(sources);
    if (ready.body->outputs.size() != node.results.size())
      throw FormatError("has another number of results than its body");
  }

  void add_results(const Node& node, ReadyNode& ready) {
    for (const auto& result : node.results) {
      ReadyResult slots{.is_list = result.is_list};
      for (const auto& name : result.names) slots.slots.push_back(name.empty() ? -1 : new_slot(name));
      if (!slots.is_list && slots.slots.size() != 1) throw FormatError("has no single result");
      ready.results.push_back(std::move(slots));
    }
    const auto returns = ready.operation ? ready.operation->schema().returns().size() : node.results.size();
    // An operation without results is given one that nobody uses.
    const bool none = returns == 0 && node.results.size() == 1 && ready.results[0].slots == std::vector{-1};
    if (none) ready.results.clear();
    if (returns != ready.results.size()) {
      throw FormatError(fmt::format("has {} results instead of {}", node.results.size(), returns));
    }
  }

  void find_last_uses() {
    std::vector<char> used(static_cast<size_t>(ready_->slots));
    for (const auto& output : ready_->outputs) mark(output.slots, used, nullptr);
    for (auto node = ready_->nodes.rbegin(); node != ready_->nodes.rend(); ++node) {
      for (const auto& result : node->results) mark(result.slots, used, &node->last_uses);
      for (const auto& argument : node->arguments) mark(argument.slots, used, &node->last_uses);
    }
    for (const auto& [node, module] : counters_) {
      for (size_t i = 0; i < all_.norms.size(); ++i) {
        if (all_.norms[i].module == module) ready_->nodes[node].counter = static_cast<int>(i);
      }
    }
  }

  static void mark(const std::vector<int>& slots, std::vector<char>& used, std::vector<int>* last_uses) {
    for (const int slot : slots) {
      if (slot < 0 || std::exchange(used[static_cast<size_t>(slot)], 1)) continue;
      if (last_uses) last_uses->push_back(slot);
    }
  }

  const Graph& graph_;
  const torch::ScalarType float_type_;
  Resolved& all_;
  const SlotOf slot_of_;
  const std::shared_ptr<ReadyGraph> ready_ = std::make_shared<ReadyGraph>();
  std::unordered_map<std::string, int> slots_;
  std::unordered_map<int, const GraphInput*> sources_;    // weights, buffers and constants, by slot
  std::vector<std::pair<size_t, std::string>> counters_;  // nodes, and the modules whose batches they count
};

}  // namespace

Resolved resolve(const ExportedGraph& exported, torch::ScalarType float_type) {
  Resolved all;
  std::vector<const GraphInput*> sources;
  for (const auto& input : exported.inputs) {
    const bool user = input.kind == InputKind::kUser || input.kind == InputKind::kFixed;
    sources.push_back(user ? nullptr : &input);
  }
  Resolver resolver(exported.graph, float_type, all);
  all.graph = resolver.resolve(sources);
  return all;
}

}  // namespace lockstep::program
