#include <lockstep/models/program/resolve.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <lockstep/models/program/batch_norm_uses.h>
#include <lockstep/models/program/conv_norms.h>
#include <lockstep/models/program/convert_argument.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/input_memory.h>
#include <lockstep/models/program/operation_properties.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/python_line.h>
#include <lockstep/models/program/ready_arguments.h>

namespace lockstep::program {
namespace {

using Kind = ReadyArgument::Kind;

// Resolves a graph, or the body of a region, whose values are its own.
class Resolver {
 public:
  Resolver(const Graph& graph, torch::ScalarType float_type, Resolved& all, BatchNormUses& norms)
      : graph_(graph),
        float_type_(float_type),
        all_(all),
        norms_(norms),
        slot_of_([this](const std::string& name) {
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
    find_layers();
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
    note_properties(ready, all_);
    note_norm(node, ready);
    constexpr std::array kRnns = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
    ready.is_rnn = std::ranges::find(kRnns, name->base) != kRnns.end();
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
      require_own_target(node.target, wanted, argument);
    }
    if (used != given.size()) {
      throw FormatError(
          fmt::format("gives an argument that is not in the schema {}", toString(ready.operation->schema())));
    }
    fix_default_type(node, ready, graph_.tensors, float_type_);
  }

  static ReadyArgument default_of(const c10::Argument& wanted) {
    if (!wanted.default_value())
      throw FormatError(fmt::format("does not give the argument '{}'", wanted.name()));
    return {.constant = *wanted.default_value()};
  }

  // A number that stands for a tensor is shared by all calls.
  static void require_own_target(const std::string& target, const c10::Argument& wanted,
                                 const ReadyArgument& argument) {
    if (!wanted.alias_info() || !wanted.alias_info()->isWrite()) return;
    if (!is_value(argument))
      throw FormatError(fmt::format("changes '{}', which is no tensor", wanted.name()));
    // Such an overload may give the tensor other sizes. F.normalize(), which spectral norms call, has one.
    if (wanted.kwarg_only() && target != "torch.ops.aten.div.out") {
      throw FormatError(
          fmt::format("writes its result into '{}', which lockstep does not run", wanted.name()),
          "use the result that the operation returns");
    }
  }

  // The weight or buffer that an argument is, or an empty name.
  std::string source_of(const ReadyArgument& argument) const {
    if (!is_value(argument)) return {};
    const auto source = sources_.find(argument.slots[0]);
    return source == sources_.end() ? std::string() : source->second->name;
  }

  void note_norm(const Node& node, ReadyNode& ready) {
    const auto* X = node.arguments.empty() ? nullptr : std::get_if<ValueName>(&node.arguments[0].value);
    const auto meta = X ? graph_.tensors.find(X->name) : graph_.tensors.end();
    norms_.note(
        node, ready, meta == graph_.tensors.end() ? nullptr : &meta->second,
        [this](const ReadyArgument& argument) { return source_of(argument); }, ready_, ready_->nodes.size());
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
    Resolver inner(**body, float_type_, all_, norms_);
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
  }

  void find_layers() {
    std::vector<const TensorMeta*> metas(static_cast<size_t>(ready_->slots));
    for (const auto& [name, slot] : slots_) {
      const auto meta = graph_.tensors.find(name);
      if (meta != graph_.tensors.end()) metas[static_cast<size_t>(slot)] = &meta->second;
    }
    all_.fused_norms += find_conv_norms(
        *ready_, metas, [this](const ReadyArgument& argument) { return source_of(argument); });
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
  BatchNormUses& norms_;
  const SlotOf slot_of_;
  const std::shared_ptr<ReadyGraph> ready_ = std::make_shared<ReadyGraph>();
  std::unordered_map<std::string, int> slots_;
  std::unordered_map<int, const GraphInput*> sources_;  // weights, buffers and constants, by slot
};

// Batch norms are left out: Resolved::norms has them, and says which ones count their batches.
bool writes_buffers(const ExportedGraph& exported, const Resolved& all) {
  std::set<std::string> counters;
  for (const auto& norm : all.norms) {
    if (norm.counts) counters.insert(norm.module);
  }
  return std::ranges::any_of(input_changes(exported), [&](const InputChange& change) {
    const auto& name = change.input->name;
    const auto operation = torch_name(change.node->target);
    if (operation && operation->base == "batch_norm") return false;
    return !is_batch_counter(name) || !counters.contains(module_of(name));
  });
}

}  // namespace

Resolved resolve(const ExportedGraph& exported, torch::ScalarType float_type) {
  Resolved all;
  std::vector<const GraphInput*> sources;
  for (const auto& input : exported.inputs) {
    const bool user = input.kind == InputKind::kUser || input.kind == InputKind::kFixed;
    sources.push_back(user ? nullptr : &input);
  }
  BatchNormUses norms(all.norms);
  Resolver resolver(exported.graph, float_type, all, norms);
  all.graph = resolver.resolve(sources);
  norms.join_counters();
  all.writes_buffers = writes_buffers(exported, all);
  return all;
}

}  // namespace lockstep::program
