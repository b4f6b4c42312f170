#include <lockstep/tests/catch.h>

#include <complex>
#include <limits>
#include <string>
#include <vector>

#include <lockstep/models/program/exported_graph.h>
#include <lockstep/models/program/format_error.h>
#include <lockstep/models/program/json_value.h>
#include <lockstep/models/program/read_graph.h>
#include <lockstep/tests/models/program/tiny_program.h>

using namespace lockstep::testing;
using namespace lockstep::program;

namespace {

Argument argument(const std::string& text) { return read_argument(parse_json(text)); }

std::string refusal_of_graph(const std::string& text) {
  try {
    read_exported_graph(text);
  } catch (const FormatError& error) {
    return error.what();
  }
  return {};
}

// The tiny program's graph with this JSON in place of its nodes; they must compute "add".
std::string with_nodes(const std::string& nodes) {
  auto text = tiny_graph();
  const auto begin = text.find("\"nodes\": [") + 10, end = text.find("],\n    \"tensor_values\"");
  return text.replace(begin, end - begin, nodes);
}

std::string call(const std::string& target, const std::string& first, const std::string& result,
                 const std::string& more = "") {
  return R"({"target": ")" + target + R"(", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": ")" +
         first + R"("}}})" + more + R"(], "outputs": [{"as_tensor": {"name": ")" + result +
         R"("}}], "metadata": {}})";
}

// A region that computes `result` from `given` by these nodes, which call the value "inner".
std::string region(const std::string& given, const std::string& nodes, const std::string& output,
                   const std::string& result) {
  return R"({"target": "torch.ops.higher_order.wrap_with_set_grad_enabled", "inputs": [
    {"name": "", "arg": {"as_bool": false}},
    {"name": "", "arg": {"as_graph": {"name": "g", "graph": {"inputs": [{"as_tensor": {"name": "inner"}}],
      "outputs": [{"as_tensor": {"name": ")" +
         output + R"("}}], "nodes": [)" + nodes + R"(], "tensor_values": {}}}}},
    {"name": "", "arg": {"as_tensor": {"name": ")" +
         given + R"("}}}],
    "outputs": [{"as_tensor": {"name": ")" +
         result + R"("}}], "metadata": {}})";
}

}  // namespace

TEST_CASE("Arguments keep their kinds and values") {
  const ValueName x{"x"};
  CHECK(argument(R"({"as_none": true})") == Argument(None()));
  CHECK(argument(R"({"as_tensor": {"name": "x"}})") == Argument(x));
  CHECK(argument(R"({"as_tensors": [{"name": "x"}]})") == Argument(std::vector{x}));
  CHECK(argument(R"({"as_optional_tensor": {"as_none": true}})") == Argument(None()));
  CHECK(argument(R"({"as_optional_tensor": {"as_tensor": {"name": "x"}}})") == Argument(x));
  CHECK(argument(R"({"as_optional_tensors": [{"as_none": true}, {"as_tensor": {"name": "x"}}]})") ==
        Argument(std::vector<std::optional<ValueName>>{std::nullopt, x}));
  CHECK(argument(R"({"as_int": -3})") == Argument(int64_t{-3}));
  CHECK(argument(R"({"as_ints": [1, 2]})") == Argument(std::vector<int64_t>{1, 2}));
  CHECK(argument(R"({"as_float": 1})") == Argument(1.0));
  CHECK(argument(R"({"as_float": "-Infinity"})") == Argument(-std::numeric_limits<double>::infinity()));
  CHECK(argument(R"({"as_floats": [0.5]})") == Argument(std::vector{0.5}));
  CHECK(argument(R"({"as_bool": true})") == Argument(true));
  CHECK(argument(R"({"as_bools": [true, false]})") == Argument(std::vector{true, false}));
  CHECK(argument(R"({"as_string": "mean"})") == Argument(std::string("mean")));
  CHECK(argument(R"({"as_sym_int": {"as_name": "x"}})") == Argument(x));
  CHECK(argument(R"({"as_sym_int": {"as_int": 7}})") == Argument(int64_t{7}));
  CHECK(argument(R"({"as_sym_float": {"as_float": 0.5}})") == Argument(0.5));
  CHECK(argument(R"({"as_sym_bool": {"as_bool": false}})") == Argument(false));
  CHECK(argument(R"({"as_sym_ints": [{"as_int": 1}, {"as_name": "x"}]})") ==
        Argument(std::vector<IntOrName>{int64_t{1}, x}));
  CHECK(argument(R"({"as_complex": {"real": 1, "imag": -2}})") == Argument(std::complex<double>(1, -2)));
  CHECK(argument(R"({"as_scalar_type": 13})") == Argument(ElementType::kBfloat16));
  CHECK(argument(R"({"as_memory_format": 2})") == Argument(MemoryFormat::kChannelsLast));
  CHECK(argument(R"({"as_layout": 7})") == Argument(Strided()));
  CHECK(argument(R"({"as_device": {"type": "cuda", "index": 1}})") == Argument(DeviceName{"cuda"}));
}

TEST_CASE("Sizes are numbers, symbols or expressions") {
  const auto size = [](const std::string& text) { return read_size(parse_json(text)); };
  CHECK(size(R"({"as_int": 3})") == Size{.number = 3});
  CHECK(size(R"J({"as_expr": {"expr_str": "Symbol('s77', positive=True, integer=True)"}})J") ==
        Size{.symbol = "s77"});
  const std::string sum = "Add(Symbol('s77', integer=True), Integer(-1))";
  CHECK(size(R"({"as_expr": {"expr_str": ")" + sum + R"("}})") == Size{.expression = sum});
  const std::string product = "Symbol('s77')*Symbol('s1')";
  CHECK(size(R"({"as_expr": {"expr_str": ")" + product + R"("}})") == Size{.expression = product});
}

TEST_CASE("A node may have several results, lists of them, and none") {
  const auto nodes =
      R"({"target": "torch.ops.aten.split.Tensor", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "x"}}}],
    "outputs": [{"as_tensors": [{"name": "a"}, {"name": "b"}]}, {"as_none": true}, {"as_sym_int": {"as_name": "n"}}],
    "metadata": {}}, )" +
      call("torch.ops.aten.relu.default", "b", "add");
  const auto exported = read_exported_graph(with_nodes(nodes));
  const auto& results = exported.graph.nodes.at(0).results;
  REQUIRE(results.size() == 3);
  CHECK(results[0].names == std::vector<std::string>{"a", "b"});
  CHECK(results[0].is_list);
  CHECK(results[1].names == std::vector<std::string>{""});
  CHECK_FALSE(results[1].is_list);
  CHECK(results[2].names == std::vector<std::string>{"n"});
}

TEST_CASE("Regions without gradients have a graph of their own") {
  const auto exported = read_exported_graph(
      with_nodes(region("x", call("torch.ops.aten.relu.default", "inner", "out"), "out", "add")));
  REQUIRE(exported.graph.nodes.size() == 1);
  const auto& node = exported.graph.nodes[0];
  REQUIRE(node.arguments.size() == 3);
  CHECK(node.arguments[0].value == Argument(false));
  CHECK(node.arguments[2].value == Argument(ValueName{"x"}));
  const auto& body = *std::get<std::shared_ptr<const Graph>>(node.arguments[1].value);
  CHECK(body.inputs == std::vector<std::string>{"inner"});
  CHECK(body.nodes.size() == 1);
  CHECK(body.outputs == std::vector<Argument>{ValueName{"out"}});

  CHECK_THAT(refusal_of_graph(
                 with_nodes(region("x", call("torch.ops.aten.relu.default", "x", "out"), "out", "add"))),
             Catch::Matchers::ContainsSubstring("uses the value 'x' before it is computed"));
  CHECK_THAT(refusal_of_graph(with_nodes(region("x", call("os.system", "inner", "out"), "out", "add"))),
             Catch::Matchers::ContainsSubstring("calls 'os.system', which lockstep does not run"));
}

TEST_CASE("Assertions about dtypes and devices are left out") {
  const auto exported = read_exported_graph(
      with_nodes(R"({"target": "torch.ops.aten._assert_tensor_metadata.default", "inputs": [{"name": "a",
    "arg": {"as_device": {"type": "any"}}}], "outputs": [], "metadata": {}}, )" +
                 call("torch.ops.aten.relu.default", "x", "add")));
  REQUIRE(exported.graph.nodes.size() == 1);
  CHECK(exported.graph.nodes[0].target == "torch.ops.aten.relu.default");
}

TEST_CASE("A change of the user's input is found through views, regions and out arguments") {
  const std::string relu = "torch.ops.aten.relu_.default", view = "torch.ops.aten.view.default";
  const auto out = R"(, {"name": "out", "arg": {"as_tensor": {"name": "x"}}})";
  const std::string changes[] = {
      call(relu, "x", "add"),
      call(view, "x", "v") + ", " + call(relu, "v", "add"),
      call("torch.ops.aten.split.Tensor", "x", "v") + ", " + call(view, "v", "w") + ", " +
          call(relu, "w", "add"),
      region("x", call(relu, "inner", "out"), "out", "add"),
      region("x", call(view, "inner", "out"), "out", "r") + ", " + call(relu, "r", "add"),
      call("torch.ops.aten.div.out", "p_w", "add", out),
  };
  for (const auto& nodes : changes) {
    INFO(nodes);
    CHECK_THAT(refusal_of_graph(with_nodes(nodes)),
               Catch::Matchers::ContainsSubstring("changes its input 'x', in operation"));
  }
  const std::string others[] = {
      call(relu, "b_b", "add"),
      call("torch.ops.aten.clone.default", "x", "c") + ", " + call(relu, "c", "add"),
      call("torch.ops.aten.linear.default", "x", "c") + ", " + call(relu, "c", "add"),
      region("x", call("torch.ops.aten.clone.default", "inner", "out"), "out", "r") + ", " +
          call(relu, "r", "add"),
  };
  for (const auto& nodes : others) {
    INFO(nodes);
    CHECK(refusal_of_graph(with_nodes(nodes)).empty());
  }
}
