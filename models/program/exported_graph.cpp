#include <lockstep/models/program/exported_graph.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include <lockstep/models/program/check_graph.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/models/program/tree_names.h>
#include <lockstep/support/printable.h>

namespace lockstep::program {
namespace {

constexpr const char* kExportAgain = "export it with torch 2.12 to 2.15";

void check_schema(ExportedGraph& graph, const Json& json) {
  const auto& version = json.at("schema_version");
  const auto major = version.at("major").integer(), minor = version.at("minor").integer();
  const auto* torch = json.find("torch_version");
  graph.torch_version = torch ? torch->text() : "unknown";
  if (major != kSchemaMajor || minor != kSchemaMinor) {
    throw FormatError(fmt::format("has schema {}.{}, written by torch {}, and lockstep reads {}.{}", major,
                                  minor, printable(graph.torch_version), kSchemaMajor, kSchemaMinor),
                      kExportAgain);
  }
  graph.schema_major = kSchemaMajor;
  graph.schema_minor = kSchemaMinor;
}

void check_dialect(const Json& json) {
  std::vector<std::string> dialects;
  for (const auto& verifier : json.at("verifiers").list()) dialects.push_back(printable(verifier.text()));
  if (dialects == std::vector<std::string>{"TRAINING"}) return;
  throw FormatError(fmt::format("has the dialect {} where TRAINING is expected", fmt::join(dialects, ", ")),
                    "save what torch.export.export() returns, without run_decompositions()");
}

Argument constant_value(const Json& json) {
  const auto [kind, value] = json.only();
  if (kind == "as_none") return None();
  if (kind == "as_int") return value.integer();
  if (kind == "as_float") return value.number();
  if (kind == "as_string") return value.text();
  if (kind == "as_bool") return value.truth();
  throw FormatError(fmt::format("has a constant input {}", in_quotes(kind)));
}

// The name of an argument of any kind, or its kind.
std::string argument_name(const Json& argument) {
  const auto [kind, value] = argument.only();
  if (!value.is_object()) return in_quotes(kind);
  for (const auto* key : {"as_name", "name"}) {
    if (const auto* name = value.find(key)) return in_quotes(name->text());
  }
  return in_quotes(kind);
}

GraphInput read_input(const Json& json) {
  const auto [kind, spec] = json.only();
  if (kind == "parameter") {
    return {InputKind::kParameter, spec.at("parameter_name").text(), spec.at("arg").at("name").text()};
  }
  if (kind == "buffer") {
    const auto where = spec.at("persistent").truth() ? InputKind::kBuffer : InputKind::kPassingBuffer;
    return {where, spec.at("buffer_name").text(), spec.at("arg").at("name").text()};
  }
  if (kind == "tensor_constant") {
    return {InputKind::kConstant, spec.at("tensor_constant_name").text(), spec.at("arg").at("name").text()};
  }
  if (kind == "constant_input") {
    const auto& name = spec.at("name").text();
    return {InputKind::kFixed, name, name, constant_value(spec.at("value"))};
  }
  if (kind == "user_input") {
    const auto& argument = spec.at("arg");
    if (argument.only().first == "as_tensor") {
      const auto name = tensor_name(read_argument(argument), "an input");
      return {InputKind::kUser, name, name};
    }
    throw FormatError(fmt::format("has an input {} that is no tensor and not fixed", argument_name(argument)),
                      "export it with a fixed number, or with a tensor of one element");
  }
  if (kind == "custom_obj") {
    throw FormatError(fmt::format("has a custom object {}, which lockstep does not support",
                                  in_quotes(spec.at("custom_obj_name").text())));
  }
  throw FormatError(
      fmt::format("has an input of the kind {}, which lockstep does not support", in_quotes(kind)));
}

void check_output(const Json& json) {
  const auto kind = json.only().first;
  if (kind == "user_output") return;
  throw FormatError(
      fmt::format("has an output of the kind {}, which lockstep does not support", in_quotes(kind)),
      "save what torch.export.export() returns, without run_decompositions()");
}

struct Signature {
  std::string in_spec, out_spec;
  std::vector<std::string> arguments;
};

std::optional<Signature> call_signature(const Json& module) {
  for (const auto& entry : module.at("module_call_graph").list()) {
    const auto* signature = entry.find("signature");
    if (!entry.at("fqn").text().empty() || !signature) continue;
    Signature found{signature->at("in_spec").text(), signature->at("out_spec").text(), {}};
    if (const auto* names = signature->find("forward_arg_names")) {
      for (const auto& name : names->list()) found.arguments.push_back(name.text());
    }
    return found;
  }
  return std::nullopt;
}

NamedTuples named_tuples(const Json& module) {
  NamedTuples all;
  const auto* types = module.find("treespec_namedtuple_fields");
  if (!types) return all;
  for (const auto& [type, definition] : types->object()) {
    for (const auto& field : definition.at("field_names").list()) all[type].push_back(field.text());
  }
  return all;
}

// Gives the user's inputs and all outputs the names of forward()'s arguments and results.
void name_ends(ExportedGraph& graph, const Json& module) {
  const auto signature = call_signature(module);
  if (!signature) throw FormatError("has no signature of forward()");
  const auto tuples = named_tuples(module);
  const auto inputs = input_names(signature->in_spec, signature->arguments, tuples);
  size_t next = 0;
  for (auto& input : graph.inputs) {
    if (input.kind != InputKind::kUser && input.kind != InputKind::kFixed) continue;
    if (next < inputs.size()) input.name = inputs[next];
    ++next;
  }
  auto outputs = output_names(signature->out_spec, tuples);
  if (next != inputs.size() || outputs.size() != graph.graph.outputs.size()) {
    throw FormatError(fmt::format("has {} inputs and {} outputs, and forward() {} and {}", next,
                                  graph.graph.outputs.size(), inputs.size(), outputs.size()));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    graph.outputs.push_back({std::move(outputs[i]), graph.graph.outputs[i]});
  }
}

void read_ranges(ExportedGraph& graph, const Json& ranges) {
  for (const auto& [symbol, range] : ranges.object()) {
    auto& read = graph.ranges[symbol];
    if (const auto* least = range.find("min_val")) read.least = least->integer();
    if (const auto* most = range.find("max_val")) read.most = most->integer();
  }
}

}  // namespace

ExportedGraph read_exported_graph(std::string_view text) {
  const auto json = parse_json(text);
  ExportedGraph exported;
  check_schema(exported, json);
  check_dialect(json);
  const auto& module = json.at("graph_module");
  const auto& signature = module.at("signature");
  std::vector<std::string> values;
  for (const auto& spec : signature.at("input_specs").list()) {
    exported.inputs.push_back(read_input(spec));
    values.push_back(exported.inputs.back().value);
  }
  for (const auto& spec : signature.at("output_specs").list()) check_output(spec);
  const auto inputs = module.at("graph").at("inputs").list().size();
  if (inputs != values.size()) {
    throw FormatError(fmt::format("has {} inputs, and their list has {}", inputs, values.size()));
  }
  exported.graph = read_graph(module.at("graph"), std::move(values));
  name_ends(exported, module);
  read_ranges(exported, json.at("range_constraints"));
  if (const auto* guards = json.find("guards_code")) {
    for (const auto& guard : guards->list()) exported.guards.push_back(guard.text());
  }
  check_graph(exported);
  return exported;
}

}  // namespace lockstep::program
