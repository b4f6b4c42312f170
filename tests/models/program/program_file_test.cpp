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
using namespace lockstep::program;

namespace {

ProgramFile read_bytes(const std::string& bytes) {
  const TempFolder folder;
  write_file(folder / "tiny.pt2", bytes);
  return read_program_file(folder / "tiny.pt2");
}

template <class T, class Part>
std::vector<std::string> names_of(const std::vector<T>& all, Part T::*part) {
  std::vector<std::string> names;
  for (const auto& one : all) names.push_back(one.*part);
  return names;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("A program's file is read as it says") {
  const auto file = read_bytes(tiny_program().bytes());
  REQUIRE(file.graphs.size() == 1);
  const auto& exported = file.graphs.at("model");
  CHECK(exported.torch_version == "2.15.0+cpu");
  CHECK(exported.schema_major == 8);
  CHECK(exported.schema_minor == 20);
  CHECK(names_of(exported.inputs, &GraphInput::name) == Names{"w", "v", "b", "p", "c", "x", "k"});
  CHECK(names_of(exported.inputs, &GraphInput::value) == exported.graph.inputs);
  CHECK(exported.graph.inputs == Names{"p_w", "p_v", "b_b", "b_p", "c_c", "x", "k"});
  using enum InputKind;
  const std::vector<InputKind> kinds{kParameter, kParameter, kBuffer, kPassingBuffer,
                                     kConstant,  kUser,      kFixed};
  for (size_t i = 0; i < kinds.size(); ++i) CHECK(exported.inputs[i].kind == kinds[i]);
  CHECK(exported.inputs[6].fixed == Argument(int64_t{2}));
  CHECK(names_of(exported.outputs, &GraphOutput::name) == Names{"output"});
  CHECK(exported.outputs[0].value == Argument(ValueName{"add"}));
  CHECK(exported.ranges.at("s77").least == 2);
  CHECK(exported.ranges.at("s77").most == INT64_MAX);
  CHECK(exported.guards == Names{"L['x'].size()[0] != 1"});
  CHECK(file.row_reports.empty());
  CHECK(file.weight_copies.empty());
}

TEST_CASE("A program's nodes have their arguments, module and place") {
  const auto file = read_bytes(tiny_program().bytes());
  const auto& graph = file.graphs.at("model").graph;
  REQUIRE(graph.nodes.size() == 2);
  const auto& linear = graph.nodes[0];
  CHECK(linear.target == "torch.ops.aten.linear.default");
  CHECK(linear.module == "fc");
  CHECK(linear.place == "File \"net.py\", line 7, in forward\n    y = self.fc(x)");
  CHECK(names_of(linear.arguments, &NamedArgument::name) == Names{"input", "weight"});
  CHECK(linear.arguments[1].value == Argument(ValueName{"p_w"}));
  REQUIRE(linear.results.size() == 1);
  CHECK(linear.results[0].names == Names{"linear"});
  CHECK_FALSE(linear.results[0].is_list);
  CHECK(graph.nodes[1].module.empty());
  const auto& x = graph.tensors.at("x");
  CHECK(x.dtype == ElementType::kFloat32);
  CHECK(x.sizes == std::vector<Size>{{.symbol = "s77"}, {.number = 3}});
}

TEST_CASE("A program's weights and constants are those of its lists, in their order") {
  const auto file = read_bytes(tiny_program().bytes());
  CHECK(names_of(file.weights, &StoredTensor::name) == Names{"w", "v", "b"});
  CHECK(names_of(file.weights, &StoredTensor::record) ==
        Names{"data/weights/weight_0", "data/weights/weight_0", "data/weights/weight_1"});
  CHECK(file.weights[0].is_parameter);
  CHECK_FALSE(file.weights[2].is_parameter);
  CHECK(file.archive->text(file.weights[2].record) == "bbbbbbbb");
  CHECK(names_of(file.constants.at("model"), &StoredTensor::name) == Names{"p", "c"});
  CHECK(file.constants.at("model")[0].meta.dtype == ElementType::kInt64);
}

// Files of torch 2.15; the digests are those of sha256sum.
TEST_CASE("Files that torch wrote are read") {
  const std::filesystem::path corpus = LOCKSTEP_PROGRAM_CORPUS;
  const auto one = read_program_file(corpus / "one_graph.pt2");
  CHECK(one.digest == "270bd0b886d98cdcede13986d598b3e2aaf40eb5dad4f9671e48e63a95264d2e");
  CHECK(names_of(one.weights, &StoredTensor::name) == Names{"f.weight", "f.bias", "b"});
  CHECK(one.graphs.at("model").torch_version == "2.15.0+cu132");
  REQUIRE(one.graphs.at("model").graph.nodes.size() == 3);
  CHECK(one.graphs.at("model").graph.nodes[2].target == "torch.ops.aten.dropout.default");

  const auto two = read_program_file(corpus / "two_graphs.pt2");
  CHECK(two.digest == "c7ee0640b69d1fc5f4809d5ea7b257d49f845290d432e61dc6487d48b2c0b4d3");
  CHECK(two.weight_copies.size() == 3);
  CHECK(two.row_reports.size() == 1);
}

TEST_CASE("The second graph's weights are copies of the first's") {
  const auto file = read_bytes(tiny_program(true).bytes());
  CHECK(file.graphs.size() == 2);
  CHECK(names_of(file.weights, &StoredTensor::record) ==
        Names{"data/weights/weight_0", "data/weights/weight_0", "data/weights/weight_1"});
  CHECK(file.weight_copies ==
        std::map<std::string, std::string>{{"data/weights/weight_2", "w"}, {"data/weights/weight_3", "b"}});
  CHECK(file.constants.at("eval")[0].record == "data/constants/tensor_4");
}

TEST_CASE("Reports about rows are read") {
  auto tiny = tiny_program();
  tiny.records.emplace_back("extra/lockstep.json", R"({"format": 1, "script": "any", "rows": [
    {"graph": "model", "rows": 0, "outcome": "equal", "text": ""},
    {"graph": "eval", "rows": 3, "outcome": "refused", "text": "ValueError: more than 1"},
    {"graph": "model", "rows": 1, "outcome": "close", "text": "1e-7"},
    {"graph": "model", "rows": 2, "outcome": "different", "text": "2"}]})");
  const auto reports = read_bytes(tiny.bytes()).row_reports;
  REQUIRE(reports.size() == 4);
  CHECK(reports[0].graph == "model");
  CHECK(reports[0].rows == 0);
  CHECK(reports[0].outcome == RowOutcome::kEqual);
  CHECK(reports[1].graph == "eval");
  CHECK(reports[1].outcome == RowOutcome::kRefused);
  CHECK(reports[1].text == "ValueError: more than 1");
  CHECK(reports[2].outcome == RowOutcome::kClose);
  CHECK(reports[3].outcome == RowOutcome::kDifferent);

  tiny.replace("extra/lockstep.json", "\"format\": 1", "\"format\": 2");
  CHECK_THAT(refusal_of<WeightsError>([&] { read_bytes(tiny.bytes()); }),
             Catch::Matchers::ContainsSubstring("has reports about rows of format 2, and lockstep reads 1"));
}
