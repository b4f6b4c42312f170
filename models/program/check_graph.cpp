#include <lockstep/models/program/check_graph.h>

#include <fmt/format.h>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/input_memory.h>
#include <lockstep/models/program/operations.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

FormatError refusal_of(const InputChange& change) {
  const auto name = in_quotes(change.input->name);
  if (change.kind == InputChange::Kind::kGradient) {
    return FormatError(
        fmt::format("changes whether its {} {} requires a gradient",
                    change.input->kind == InputKind::kUser ? "input" : "parameter or buffer", name),
        "freeze parameters before the export; in forward(), x.detach().requires_grad_()");
  }
  if (change.input->kind == InputKind::kConstant) {
    return FormatError(fmt::format("changes the constant {}, which is not part of the model's state", name),
                       "register it as a buffer in Python: self.register_buffer(...)");
  }
  return FormatError(fmt::format("changes its input {}", name), "let forward() change a copy: x = x.clone()");
}

void check_change(const InputChange& change) {
  const auto kind = change.input->kind;
  const bool is_state =
      kind == InputKind::kParameter || kind == InputKind::kBuffer || kind == InputKind::kPassingBuffer;
  if (change.kind == InputChange::Kind::kElements && is_state) return;
  throw placed(refusal_of(change), *change.node);
}

void check_dtype(const Graph& graph, const std::string& value, const char* what) {
  if (!graph.tensors.contains(value))
    throw FormatError(fmt::format("has an {} {} without a dtype", what, in_quotes(value)));
}

}  // namespace

void check_graph(const ExportedGraph& exported) {
  const auto changes = input_changes(exported);
  for (const auto& input : exported.inputs) {
    if (input.kind != InputKind::kFixed) check_dtype(exported.graph, input.value, "input");
  }
  for (const auto& change : changes) check_change(change);
}

}  // namespace lockstep::program
