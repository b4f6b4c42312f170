#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/models/program/program_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/program/tiny_program.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

std::string refusal_of_program(const TinyProgram& tiny) {
  const TempFolder folder;
  write_file(folder / "tiny.pt2", tiny.bytes());
  return refusal_and_hint<WeightsError>([&] { program::read_program_file(folder / "tiny.pt2"); });
}

// A change of a record's text, and the words of the refusal that follows.
struct Change {
  std::string record, from, to, words;
};

void check_refusals(const std::vector<Change>& changes, bool eval = false) {
  for (const auto& change : changes) {
    INFO(change.from << " -> " << change.to);
    auto tiny = tiny_program(eval);
    CHECK_THAT(refusal_of_program(tiny.replace(change.record, change.from, change.to)),
               Catch::Matchers::ContainsSubstring(change.words));
  }
}

const std::string kModel = "models/model.json", kWeights = "data/weights/model_weights_config.json",
                  kConstants = "data/constants/model_constants_config.json";

}  // namespace

TEST_CASE("Programs of other formats and versions are refused with both") {
  check_refusals({
      {"archive_format", "pt2", "pt3", "has the archive_format 'pt3' where 'pt2' is expected"},
      {"archive_version", "0", "1", "has the archive_version '1' where '0' is expected"},
      {"byteorder", "little", "big", "has the byteorder 'big' where 'little' is expected"},
      {kModel, "\"minor\": 20", "\"minor\": 14",
       "has schema 8.14, written by torch 2.15.0+cpu, and lockstep reads 8.20"},
      {kModel, "\"minor\": 20", "\"minor\": 21", "has schema 8.21,"},
      {kModel, "\"major\": 8", "\"major\": 9",
       "has schema 9.20, written by torch 2.15.0+cpu, and lockstep reads 8.20"},
      {kModel, "\"TRAINING\"", "\"ATEN\"",
       "has the dialect ATEN where TRAINING is expected | save what torch.export.export() returns, without "
       "run_decompositions()"},
      {kModel, "\"TRAINING\"", "\"TRAINING\", \"EDGE\"", "has the dialect TRAINING, EDGE where"},
  });
}

TEST_CASE("A program is refused for a damaged record, also for one that nobody reads") {
  for (const auto& [name, text] : tiny_program().records) {
    INFO(name);
    std::vector<ZipRecord> zip;
    for (const auto& [other, bytes] : tiny_program().records) {
      zip.push_back({.name = "tiny/" + other, .bytes = bytes, .crc_change = other == name ? 1U : 0U});
    }
    const TempFolder folder;
    write_file(folder / "tiny.pt2", zip_of(zip));
    CHECK_THAT(refusal_of<WeightsError>([&] { program::read_program_file(folder / "tiny.pt2"); }),
               Catch::Matchers::ContainsSubstring("is damaged: record '" + name + "' has CRC-32"));
  }
}

TEST_CASE("A program without a part is refused by the part's name") {
  for (const std::string record :
       {"archive_format", "byteorder", "data/weights/weight_1", "data/constants/tensor_2",
        "data/weights/model_weights_config.json", "data/constants/model_constants_config.json"}) {
    INFO(record);
    CHECK_THAT(refusal_of_program(tiny_program().remove(record)),
               Catch::Matchers::ContainsSubstring("has no record '" + record + "'"));
  }
  CHECK_THAT(refusal_of_program(tiny_program().remove(kModel)),
             Catch::Matchers::ContainsSubstring("has no graph 'model'"));
}

TEST_CASE("A program with parts that lockstep does not know is refused by the part's name") {
  struct Case {
    std::string record, words;
  };
  const Case cases[] = {
      {"data/aotinductor/model/a.so",
       "has a record 'data/aotinductor/model/a.so', which lockstep does not know"},
      {"models/prefill.json",
       "has the graphs 'model', 'prefill' where 'model' and perhaps 'eval' are expected"},
      {"data.pkl", "was written by torch.save() or torch.jit.save(), not by torch.export"},
      {"constants.pkl", "was written by torch.save() or torch.jit.save(), not by torch.export"},
  };
  for (const auto& [record, words] : cases) {
    auto tiny = tiny_program();
    tiny.records.emplace_back(record, "{}");
    CHECK_THAT(refusal_of_program(tiny), Catch::Matchers::ContainsSubstring(words));
  }
}

TEST_CASE("Damaged JSON is refused with what is wrong") {
  check_refusals({
      {kModel, "\"torch_version\"", "torch_version", "is no JSON at byte"},
      {kModel, "\"torch_version\"", "\"verifiers\"", "has the key 'verifiers' twice"},
      {kModel, "\"schema_version\"", "\"schema\"", "has no 'schema_version'"},
      {kModel, "\"s77\": {\"min_val\": 2", "\"s77\": {\"min_val\": 2.5",
       "has the number 2.5 where an integer is expected"},
      {kWeights, "\"config\"", "\"configs\"", "has no 'config'"},
  });
}

TEST_CASE("Tensors that do not fit their bytes are refused") {
  const std::string end = "\"storage_offset\": {\"as_int\": 0}, \"layout\": 7";
  check_refusals({
      {"data/weights/weight_1", "bbbbbbbb", "bbbbbbb",
       "has a tensor 'b' whose last element is number 1 of 1 in record"},
      {"data/constants/tensor_3", "cccccccccccc", "",
       "has a tensor 'c' whose last element is number 2 of 0 in record"},
      {kWeights, "{\"as_int\": 3}, {\"as_int\": 1}]", "{\"as_int\": 4}, {\"as_int\": 1}]",
       "has a tensor 'w' whose last element is number 6 of 6 in record 'data/weights/weight_0'"},
      {kWeights, "{\"as_int\": 3}, {\"as_int\": 1}]", "{\"as_int\": 9223372036854775807}, {\"as_int\": 3}]",
       "has a tensor 'w' whose last element is number beyond"},
      {kWeights, "\"as_int\": 0", "\"as_int\": 1", "has a tensor 'w' whose last element is number 6 of 6"},
      {kWeights, "{\"as_int\": 3}, {\"as_int\": 1}]", "{\"as_int\": 0}, {\"as_int\": 1}]",
       "has a weight 'w' whose elements share bytes"},
      {kWeights, "{\"as_int\": 3}, {\"as_int\": 1}]", "{\"as_int\": 2}, {\"as_int\": 1}]",
       "has a weight 'w' whose elements share bytes"},
      {kWeights, "{\"as_int\": 3}, {\"as_int\": 1}]", "{\"as_int\": -3}, {\"as_int\": 1}]",
       "has a size of -3, tensor 'w'"},
      {kWeights, "\"strides\": [{\"as_int\": 3}, ", "\"strides\": [",
       "has a tensor of 2 sizes and 1 strides, tensor 'w'"},
      {kWeights, "\"layout\": 7", "\"layout\": 2",
       "has the layout 2 where 7 (strided) is expected, tensor 'w'"},
      {kWeights, "\"dtype\": 7", "\"dtype\": 29", "has the dtype 29"},
      {kWeights, "\"dtype\": 7", "\"dtype\": 0", "has the dtype 0"},
      {kWeights, "\"sizes\": [{\"as_int\": 2}, {\"as_int\": 3}]",
       "\"sizes\": [{\"as_expr\": {\"expr_str\": \"s0\"}}, {\"as_int\": 3}]",
       "has a tensor 'w' whose sizes are not fixed"},
      {kWeights, "\"use_pickle\": false", "\"use_pickle\": true",
       "has 'w' as a Python object (a pickle), which lockstep never reads"},
      {kConstants, "\"use_pickle\": false", "\"use_pickle\": true", "has 'p' as a Python object (a pickle)"},
      {kConstants, "\"path_name\": \"tensor_2\"", "\"path_name\": \"../weights/weight_0\"",
       "has no record 'data/constants/../weights/weight_0'"},
  });
}

TEST_CASE("Tied weights must be the same tensor") {
  const std::string twin =
      "\"v\": {\"path_name\": \"weight_0\", \"is_param\": true, \"use_pickle\": false, "
      "\"tensor_meta\": {\"dtype\": 7, \"sizes\": [{\"as_int\": 2}, {\"as_int\": 3}]";
  auto shorter = twin;
  shorter.replace(shorter.find("\"as_int\": 2"), 11, "\"as_int\": 1");
  check_refusals(
      {{kWeights, twin, shorter, "has weights 'w' and 'v' that share memory, but are not the same tensor"}});
}

TEST_CASE("Weights that the graph takes otherwise are refused") {
  check_refusals({
      {kWeights, "\"b\": {\"path_name\"", "\"bb\": {\"path_name\"", "has no weight 'b'"},
      {kConstants, "\"c\": {\"path_name\"", "\"d\": {\"path_name\"", "has no constant 'c'"},
      {kWeights, "\"is_param\": false", "\"is_param\": true",
       "has a tensor 'b' that its graph takes with another dtype"},
      {kConstants, "\"dtype\": 5", "\"dtype\": 6",
       "has a tensor 'p' that its graph takes with another dtype"},
      {kWeights, "{\"as_int\": 2}, {\"as_int\": 3}", "{\"as_int\": 1}, {\"as_int\": 3}",
       "has a tensor 'w' that its graph takes with another dtype"},
  });
}

TEST_CASE("Graphs that do not fit are refused") {
  const std::string x = "{\"user_input\": {\"arg\": {\"as_tensor\": {\"name\": \"x\"}}}}";
  check_refusals({
      {kModel, x + ",", "", "has 7 inputs, and their list has 6"},
      {kModel, x, "{\"user_input\": {\"arg\": {\"as_sym_int\": {\"as_name\": \"n\"}}}}",
       "has an input 'n' that is no tensor and not fixed"},
      {kModel, x, "{\"token\": {\"arg\": {\"name\": \"t\"}}}", "has an input of the kind 'token'"},
      {kModel, x,
       "{\"custom_obj\": {\"arg\": {\"name\": \"o\", \"class_fqn\": \"C\"}, \"custom_obj_name\": \"o\"}}",
       "has a custom object 'o', which lockstep does not support"},
      {kModel, "\"user_output\"", "\"buffer_mutation\"",
       "has an output of the kind 'buffer_mutation', which lockstep does not support | save what "
       "torch.export.export()"},
      {kModel, "\"user_output\"", "\"user_input_mutation\"",
       "has an output of the kind 'user_input_mutation'"},
      {kModel, "\"fqn\": \"\"", "\"fqn\": \"other\"", "has no signature of forward()"},
      {kModel, "\"out_spec\": \"[1,", "\"out_spec\": \"[2,", "has a tree of protocol 2"},
      {kModel, "\"name\": \"other\", \"arg\": {\"as_tensor\": {\"name\": \"b_b\"}}",
       "\"name\": \"other\", \"arg\": {\"as_tensor\": {\"name\": \"later\"}}",
       "uses the value 'later' before it is computed, in operation 'torch.ops.aten.add.Tensor' "
       "(net.py, line 8: return y + self.b)"},
      {kModel, "\"outputs\": [{\"as_tensor\": {\"name\": \"add\"}}],\n       \"metadata\"",
       "\"outputs\": [{\"as_tensor\": {\"name\": \"x\"}}],\n       \"metadata\"",
       "has two values 'x', in operation"},
      {kModel, "\"outputs\": [{\"as_tensor\": {\"name\": \"add\"}}],\n    \"nodes\"",
       "\"outputs\": [{\"as_tensor\": {\"name\": \"sub\"}}],\n    \"nodes\"",
       "uses the value 'sub' before it is computed"},
      {kModel, "\"x\": {\"dtype\"", "\"xx\": {\"dtype\"", "has an input 'x' without a dtype"},
      {kModel, "\"storage_offset\": {\"as_int\": 0}, \"layout\": 7}},",
       "\"storage_offset\": {\"as_int\": 0}, \"layout\": 1}},",
       "has the layout 1 where 7 (strided) is expected, value 'add'"},
  });
}

TEST_CASE("Operations that lockstep does not run are refused with their line of Python") {
  const std::string linear = "torch.ops.aten.linear.default",
                    argument = "{\"as_tensor\": {\"name\": \"p_w\"}}, \"kind\": 1}],";
  const auto with = [&](const std::string& value) { return value + ", \"kind\": 1}],"; };
  check_refusals({
      {kModel, linear, "torch.ops.aten.from_file.default",
       "calls 'torch.ops.aten.from_file.default', which lockstep does not run (net.py, line 7: y = "
       "self.fc(x)) | write it"},
      {kModel, linear, "torch.ops.mine.op.default",
       "calls 'torch.ops.mine.op.default', which lockstep does not run (net.py"},
      {kModel, linear, "torch.ops.higher_order.cond",
       "which lockstep does not run (net.py, line 7: y = self.fc(x)) | replace"},
      {kModel, linear, "torch.ops.higher_order.wrap_with_set_grad_enabled",
       "has no body, in operation 'torch.ops.higher_order.wrap_with_set_grad_enabled' (net.py, line 7"},
      {kModel, linear, "torch.ops.aten.relu_.default",
       "changes its input 'x', in operation 'torch.ops.aten.relu_.default' (net.py, line 7: y = self.fc(x)) "
       "| let forward()"},
      {kModel, argument, with("{\"as_custom_obj\": {\"name\": \"o\", \"class_fqn\": \"C\"}}"),
       "takes an argument 'as_custom_obj', which lockstep does not support (argument 'weight'), in "
       "operation"},
      {kModel, argument, with("{\"as_nested_tensors\": []}"), "takes an argument 'as_nested_tensors'"},
      {kModel, argument, with("{\"as_strings\": [\"a\"]}"), "takes a list of texts"},
      {kModel, argument, with("{\"as_device\": {\"type\": \"meta\", \"index\": null}}"),
       "has the device 'meta'"},
      {kModel, argument, with("{\"as_memory_format\": 5}"), "has the memory format 5 (1 to 4 are known)"},
      {kModel, argument, with("{\"as_layout\": 1}"), "has the layout 1 where 7 (strided) is expected"},
      {kModel, argument, with("{\"as_scalar_type\": 28}"), "has the dtype 28"},
      {kModel, argument,
       with("{\"as_graph\": {\"name\": \"g\", \"graph\": {\"inputs\": [], \"outputs\": [], \"nodes\": [], "
            "\"tensor_values\": {}}}}"),
       "takes a graph, in operation"},
  });
}

TEST_CASE("Names within many modules are refused with both numbers") {
  std::string name = "b";
  for (int i = 0; i < 20'000; ++i) name += ".b";
  const std::string words = " within 20000 modules, and lockstep takes 100";
  check_refusals({{kWeights, "\"b\": {", "\"" + name + "\": {", words},
                  {kConstants, "\"p\": {", "\"" + name + "\": {", words},
                  {kModel, "L__self___fc,fc,", "L__self___fc," + name + ",", words}});
}

TEST_CASE("Two graphs of different modules are refused") {
  const std::string graph = "models/eval.json", weights = "data/weights/eval_weights_config.json";
  check_refusals(
      {
          {"data/weights/weight_2", "wwwwww", "wwwwwx",
           "has two weights 'w' that differ, of the graphs 'model' and 'eval'"},
          {weights, "\"as_int\": 0", "\"as_int\": 00", "is no JSON"},
          {graph, "\"minor\": 20", "\"minor\": 19", "and lockstep reads 8.20 (graph 'eval')"},
          {graph, "\"forward_arg_names\": [\"x\"", "\"forward_arg_names\": [\"z\"",
           "has the inputs x of graph 'model' and z of 'eval'"},
          {"data/constants/tensor_4", "pppp", "pppq",
           "has two buffers 'p' that differ, of the graphs 'model' and 'eval'"},
      },
      true);
}

TEST_CASE(
    "A weight of the evaluation graph in the record of another one is refused, whatever its bytes are") {
  auto tiny = tiny_program(true);
  const std::string weights = "data/weights/eval_weights_config.json";
  const auto pair = meta(R"({"as_int": 2})", R"({"as_int": 1})");
  for (const std::string graph : {"model", "eval"}) {  // "b" and a new weight "d" with the same bytes
    tiny.replace("data/weights/" + graph + "_weights_config.json", "{\"config\": {",
                 R"({"config": {"d": {"path_name": "weight_d", "is_param": false, "use_pickle": false, )"
                 R"("tensor_meta": )" +
                     pair + "}, ");
  }
  tiny.records.emplace_back("data/weights/weight_d", std::string(8, 'b'));
  const TempFolder folder;
  write_file(folder / "tiny.pt2", tiny.bytes());
  CHECK_NOTHROW(program::read_program_file(folder / "tiny.pt2"));
  // Saving would write the trained "d" where "b" is read.
  const auto own = tiny.record(weights);
  const auto at = own.find("\"path_name\": \"weight_", own.find("\"b\": {"));
  const auto path = own.substr(at, own.find(',', at) - at);
  tiny.replace(weights, path, "\"path_name\": \"weight_d\"");
  CHECK_THAT(refusal_of_program(tiny),
             Catch::Matchers::ContainsSubstring("of graph 'eval' in the record of 'd'") ||
                 Catch::Matchers::ContainsSubstring("that is tied to another in graph 'eval' only"));
  tiny.replace(weights, "\"d\": {\"path_name\": \"weight_d\"", "\"d\": {\"path_name\": \"weight_e\"");
  tiny.records.emplace_back("data/weights/weight_e", std::string(8, 'b'));
  CHECK_THAT(refusal_of_program(tiny),
             Catch::Matchers::ContainsSubstring("has the weight 'b' of graph 'eval' in the record of 'd'"));
}

TEST_CASE("A flipped bit in any record is found") {
  const auto tiny = tiny_program(true);
  const TempFolder folder;
  for (const auto& [name, text] : tiny.records) {
    INFO(name);
    auto bytes = tiny.bytes();
    bytes[bytes.find("tiny/" + name) + 5 + name.size()] ^= 4;  // the record's first byte
    write_file(folder / "tiny.pt2", bytes);
    CHECK_THAT(refusal_of<WeightsError>([&] { program::read_program_file(folder / "tiny.pt2"); }),
               Catch::Matchers::ContainsSubstring("record '" + name + "' has CRC-32"));
  }
}
