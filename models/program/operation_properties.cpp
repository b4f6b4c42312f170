#include <lockstep/models/program/operation_properties.h>

#include <ATen/core/enum_tag.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/ready_arguments.h>

namespace lockstep::program {
namespace {

using Kind = ReadyArgument::Kind;

// The dtype of the first result, as the exporter saw it.
std::optional<torch::ScalarType> recorded_type(const Node& node,
                                               const std::map<std::string, TensorMeta>& tensors) {
  if (node.results.empty() || node.results[0].names.empty()) return std::nullopt;
  const auto meta = tensors.find(node.results[0].names[0]);
  return meta == tensors.end() ? std::nullopt : std::optional(scalar_type(meta->second.dtype));
}

template <class Is>
bool any_tensor(const Node& node, const std::map<std::string, TensorMeta>& tensors, const Is& is) {
  const auto of_name = [&](const ValueName& value) {
    const auto meta = tensors.find(value.name);
    return meta != tensors.end() && is(scalar_type(meta->second.dtype));
  };
  return std::ranges::any_of(node.arguments, [&](const NamedArgument& argument) {
    if (const auto* one = std::get_if<ValueName>(&argument.value)) return of_name(*one);
    if (const auto* all = std::get_if<std::vector<ValueName>>(&argument.value))
      return std::ranges::any_of(*all, of_name);
    if (const auto* all = std::get_if<std::vector<std::optional<ValueName>>>(&argument.value)) {
      return std::ranges::any_of(*all, [&](const auto& one) { return one && of_name(*one); });
    }
    return false;
  });
}

bool is_float(torch::ScalarType type) { return torch::isFloatingType(type) || torch::isComplexType(type); }

}  // namespace

void note_properties(const ReadyNode& node, Resolved& all) {
  const auto is = [&](const char* name, const auto& test) {
    const auto* argument = find_argument(node, name);
    return argument && test(*argument);
  };
  const auto is_false = [](const ReadyArgument& argument) { return is_constant(argument, false); };
  bool mode = false, off = false;
  for (const char* name : {"training", "train", "use_input_stats"}) {
    mode = mode || is(name, [&](const auto& argument) { return !is_false(argument); });
    off = off || is(name, is_false);
  }
  for (const char* name : {"dropout_p", "dropout"}) {
    mode = mode ||
           is(name, [&](const auto& argument) { return !is_zero(argument) && argument.constant.isDouble(); });
    off = off || is(name, is_zero);
  }
  // Without running averages it computes the same in both modes.
  mode = mode && !is("running_mean", [](const auto& argument) { return argument.kind == Kind::kConstant; });
  const bool dropout = node.name.find("dropout") != std::string::npos;
  off = off || (dropout && is("p", is_zero));
  const bool random = !off && node.operation->hasTag(at::Tag::nondeterministic_seeded);
  const bool rnn_without_dropout =
      is("dropout", is_zero) && is("num_layers", [](const auto&) { return true; });
  all.random = all.random || random;
  all.depends_on_mode = all.depends_on_mode || random || (mode && !rnn_without_dropout && !(dropout && off));
  all.captures = all.captures && !node.operation->hasTag(at::Tag::data_dependent_output) &&
                 !node.operation->hasTag(at::Tag::dynamic_output_shape);
}

void fix_default_type(const Node& node, ReadyNode& ready, const std::map<std::string, TensorMeta>& tensors,
                      torch::ScalarType float_type) {
  if (ready.name == "aten::float_power") return;  // float64, whatever the default type is
  const auto type = recorded_type(node, tensors);
  if (!type || !is_float(*type)) return;
  const auto& wanted = ready.operation->schema().arguments();
  const auto found = std::ranges::find_if(wanted, [](const auto& one) { return one.name() == "dtype"; });
  auto* dtype =
      found == wanted.end() ? nullptr : &ready.arguments[static_cast<size_t>(found - wanted.begin())];
  const bool is_given = dtype && !is_none(*dtype);
  if (is_given || any_tensor(node, tensors, is_float)) return;
  const bool from_tensor = any_tensor(node, tensors, [](auto) { return true; });
  if (dtype && !from_tensor) {
    dtype->kind = *type == float_type ? Kind::kFloatType : Kind::kConstant;
    dtype->constant = *type;
    return;
  }
  const auto real = torch::toRealValueType(*type);
  if (real == torch::kFloat32) return;
  throw FormatError(fmt::format("gives the type {} because it was torch's default type", toString(*type)),
                    "name the type in forward(), such as x.to(torch.float64), or export it under the default "
                    "type torch.float32");
}

}  // namespace lockstep::program
