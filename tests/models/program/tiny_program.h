// A program's file by hand, with parts that tests replace.
#pragma once

#include <array>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/tests/models/program/zip_builder.h>

namespace lockstep::testing {

// forward(x) of a module with a parameter "w" and its tied twin "v", a buffer "b", a buffer "p" that is not
// persistent, and a constant "c":  add(linear(x, w), b), computed from any number of rows of 3 floats.
struct TinyProgram {
  std::vector<std::pair<std::string, std::string>> records;

  std::string& record(const std::string& name) {
    for (auto& [key, text] : records) {
      if (key == name) return text;
    }
    throw std::runtime_error("no record " + name);
  }

  // Replaces each occurrence; there must be one.
  TinyProgram& replace(const std::string& name, const std::string& from, const std::string& to) {
    auto& text = record(name);
    size_t count = 0;
    for (size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size(), ++count) {
      text.replace(at, from.size(), to);
    }
    if (count == 0) throw std::runtime_error(name + " has no " + from);
    return *this;
  }

  TinyProgram& remove(const std::string& name) {
    std::erase_if(records, [&](const auto& record) { return record.first == name; });
    return *this;
  }

  std::string bytes() const {
    std::vector<ZipRecord> zip;
    for (const auto& [name, text] : records) zip.push_back({.name = "tiny/" + name, .bytes = text});
    return zip_of(zip);
  }
};

// The JSON of a tensor's dtype and shape; lists as JSON writes them.
inline std::string meta(const std::string& sizes, const std::string& strides, int dtype = 7) {
  return R"J({"dtype": )J" + std::to_string(dtype) + R"J(, "sizes": [)J" + sizes +
         R"J(], "requires_grad": false, "device": {"type": "cpu", "index": null}, "strides": [)J" + strides +
         R"J(], "storage_offset": {"as_int": 0}, "layout": 7})J";
}

// models/model.json, with TENSORS for the values' dtypes and shapes.
constexpr const char* kTinyGraph = R"J({"graph_module": {"graph": {
    "inputs": [{"as_tensor": {"name": "p_w"}}, {"as_tensor": {"name": "p_v"}}, {"as_tensor": {"name": "b_b"}},
      {"as_tensor": {"name": "b_p"}}, {"as_tensor": {"name": "c_c"}}, {"as_tensor": {"name": "x"}}, {"as_int": 2}],
    "outputs": [{"as_tensor": {"name": "add"}}],
    "nodes": [
      {"target": "torch.ops.aten.linear.default",
       "inputs": [{"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
         {"name": "weight", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1}],
       "outputs": [{"as_tensor": {"name": "linear"}}],
       "metadata": {"stack_trace": "File \"net.py\", line 7, in forward\n    y = self.fc(x)",
         "nn_module_stack": "L__self__,,net.Net;L__self___fc,fc,torch.nn.modules.linear.Linear"},
       "is_hop_single_tensor_return": null, "name": "linear"},
      {"target": "torch.ops.aten.add.Tensor",
       "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "linear"}}, "kind": 1},
         {"name": "other", "arg": {"as_tensor": {"name": "b_b"}}, "kind": 1}],
       "outputs": [{"as_tensor": {"name": "add"}}],
       "metadata": {"stack_trace": "File \"net.py\", line 8, in forward\n    return y + self.b"}, "name": "add"}],
    "tensor_values": {TENSORS},
    "sym_int_values": {}, "sym_bool_values": {}, "is_single_tensor_return": false},
  "signature": {
    "input_specs": [{"parameter": {"arg": {"name": "p_w"}, "parameter_name": "w"}},
      {"parameter": {"arg": {"name": "p_v"}, "parameter_name": "v"}},
      {"buffer": {"arg": {"name": "b_b"}, "buffer_name": "b", "persistent": true}},
      {"buffer": {"arg": {"name": "b_p"}, "buffer_name": "p", "persistent": false}},
      {"tensor_constant": {"arg": {"name": "c_c"}, "tensor_constant_name": "c"}},
      {"user_input": {"arg": {"as_tensor": {"name": "x"}}}},
      {"constant_input": {"name": "k", "value": {"as_int": 2}}}],
    "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "add"}}}}]},
  "module_call_graph": [{"fqn": "", "signature": {"inputs": [], "outputs": [], "in_spec": "[1, CALL]",
      "out_spec": "[1, {\"type\": null, \"context\": null, \"children_spec\": []}]",
      "forward_arg_names": ["x", "k"]}}, {"fqn": "fc", "signature": null}],
  "metadata": {}, "treespec_namedtuple_fields": {}},
  "opset_version": {"aten": 10}, "range_constraints": {"s77": {"min_val": 2, "max_val": null}},
  "schema_version": {"major": 8, "minor": 20}, "verifiers": ["TRAINING"], "torch_version": "2.15.0+cpu",
  "guards_code": ["L['x'].size()[0] != 1"]})J";

// The in_spec of forward(x, k).
constexpr const char* kTinyCall =
    R"J({\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [)J"
    R"J({\"type\": \"builtins.tuple\", \"context\": \"null\", \"children_spec\": [)J"
    R"J({\"type\": null, \"context\": null, \"children_spec\": []}, )J"
    R"J({\"type\": null, \"context\": null, \"children_spec\": []}]}, )J"
    R"J({\"type\": \"builtins.dict\", \"context\": \"[]\", \"children_spec\": []}]})J";

inline std::string tiny_graph() {
  const std::string one = R"({"as_int": 1})", two = R"({"as_int": 2})", three = R"({"as_int": 3})";
  const std::string rows =
      R"J({"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)", "hint": {"as_int": 2}}})J";
  const auto matrix = meta(two + ", " + three, three + ", " + one),
             result = meta(rows + ", " + two, two + ", " + one);
  const std::vector<std::array<std::string, 2>> tensors{
      {"p_w", matrix},           {"p_v", matrix},
      {"b_b", meta(two, one)},   {"b_p", meta("", "", 5)},
      {"c_c", meta(three, one)}, {"x", meta(rows + ", " + three, three + ", " + one)},
      {"linear", result},        {"add", result}};
  std::string values;
  for (const auto& [name, tensor] : tensors)
    values += (values.empty() ? "\"" : ", \"") + name + "\": " + tensor;
  std::string text = kTinyGraph;
  text.replace(text.find("TENSORS"), 7, values);
  return text.replace(text.find("CALL"), 4, kTinyCall);
}

inline std::string tiny_config(const std::vector<std::array<std::string, 4>>& tensors) {
  std::string text = R"({"config": {)";
  for (const auto& [name, path, is_param, tensor_meta] : tensors) {
    if (!text.ends_with('{')) text += ", ";
    text += "\"" + name + R"(": {"path_name": ")" + path + R"(", "is_param": )" + is_param +
            R"(, "use_pickle": false, "tensor_meta": )" + tensor_meta + "}";
  }
  return text + "}}";
}

// With `eval`, the file has a second graph, which stores the weights again.
inline TinyProgram tiny_program(bool eval = false) {
  const auto matrix = meta(R"({"as_int": 2}, {"as_int": 3})", R"({"as_int": 3}, {"as_int": 1})");
  const auto pair = meta(R"({"as_int": 2})", R"({"as_int": 1})"),
             triple = meta(R"({"as_int": 3})", R"({"as_int": 1})");
  TinyProgram tiny;
  int next = 0;
  for (const std::string graph : {"model", "eval"}) {
    if (graph == "eval" && !eval) continue;
    const auto w = "weight_" + std::to_string(next++), b = "weight_" + std::to_string(next++);
    tiny.records.insert(
        tiny.records.end(),
        {{"data/weights/" + w, std::string(24, 'w')},
         {"data/weights/" + b, std::string(8, 'b')},
         {"data/weights/" + graph + "_weights_config.json",
          tiny_config({{{"w", w, "true", matrix}, {"v", w, "true", matrix}, {"b", b, "false", pair}}})},
         {"data/constants/tensor_" + std::to_string(next), std::string(8, 'p')},
         {"data/constants/tensor_" + std::to_string(next + 1), std::string(12, 'c')},
         {"data/constants/" + graph + "_constants_config.json",
          tiny_config({{{"p", "tensor_" + std::to_string(next), "false", meta("", "", 5)},
                        {"c", "tensor_" + std::to_string(next + 1), "false", triple}}})},
         {"models/" + graph + ".json", tiny_graph()},
         {"data/sample_inputs/" + graph + ".pt", "a pickle, which nobody reads"}});
  }
  tiny.records.insert(tiny.records.end(), {{"archive_format", "pt2"},
                                           {"archive_version", "0"},
                                           {".data/version", "6\n"},
                                           {"byteorder", "little"},
                                           {".data/serialization_id", "123"}});
  return tiny;
}

}  // namespace lockstep::testing
