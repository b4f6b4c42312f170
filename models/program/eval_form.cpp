#include <lockstep/models/program/eval_form.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include <lockstep/models/program/operations.h>

namespace lockstep::program {
namespace {

// A share of numbers that would be dropped in training.
bool drops(const Node& node, std::string_view name) {
  const auto* share = argument_of<double>(node, name);
  return share && *share > 0;
}

bool has_averages(const Node& node) { return argument_of<ValueName>(node, "running_mean") != nullptr; }

bool is_eval_norm(std::string_view name, const Node& node) {
  if (name == "batch_norm") return is_false(node, "training") && has_averages(node);
  return name == "instance_norm" && is_false(node, "use_input_stats");
}

bool is_eval_dropout(std::string_view name, const Node& node) {
  constexpr std::array<std::string_view, 4> kRnns = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
  if (!is_false(node, "train")) return false;
  if (std::ranges::find(kRnns, name) != kRnns.end()) return drops(node, "dropout");
  return name.find("dropout") != std::string_view::npos && drops(node, "p");
}

void count(const Graph& graph, Program::EvalForm& form) {
  for (const auto& node : graph.nodes) {
    if (const auto name = torch_name(node.target)) {
      form.batch_norms += is_eval_norm(name->base, node) ? 1 : 0;
      form.dropouts += is_eval_dropout(name->base, node) ? 1 : 0;
    }
    for (const auto& argument : node.arguments) {
      const auto* body = std::get_if<std::shared_ptr<const Graph>>(&argument.value);
      if (body && *body) count(**body, form);
    }
  }
}

}  // namespace

Program::EvalForm eval_form_of(const Graph& graph) {
  Program::EvalForm form;
  count(graph, form);
  return form;
}

}  // namespace lockstep::program
