// Batches, constants and requires_grad are not a program's to change.
#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/models/program/program_file.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/program/tiny_program.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const std::string kGraph = "models/model.json";

// Empty: the program is read.
std::string words_about(const TinyProgram& tiny) {
  const TempFolder folder;
  write_file(folder / "tiny.pt2", tiny.bytes());
  try {
    program::read_program_file(folder / "tiny.pt2");
  } catch (const WeightsError& error) {
    return error.message();
  }
  return {};
}

}  // namespace

TEST_CASE("A change of an input is also refused through what may share its memory") {
  for (const std::string view :
       {"view.default", "positive.default", "resolve_conj.default", "view_as_complex.default",
        "linalg_diagonal.default", "unsafe_split.Tensor", "atleast_2d.default", "dropout.default",
        "einsum.default", "cartesian_prod.default", "chain_matmul.default"}) {
    INFO(view);
    auto tiny = tiny_program();
    tiny.replace(kGraph, "aten.linear.default", "aten." + view)
        .replace(kGraph, "aten.add.Tensor", "aten.add_.Tensor");
    CHECK_THAT(words_about(tiny), Catch::Matchers::ContainsSubstring("changes its input 'x'"));
  }
}

TEST_CASE("A list of one may be returned as it is; lists of several make new memory, or views one by one") {
  struct Case {
    std::string operation, list, words;
  };
  const std::string changed = "changes its input 'x'", both = R"({"name": "x"}, {"name": "p_w"})";
  const Case cases[] = {
      {"einsum.default", R"({"name": "x"})", changed},
      {"einsum.default", both, ""},
      {"cartesian_prod.default", both, ""},
      {"chain_matmul.default", both, ""},
  };
  for (const auto& [operation, list, refusal] : cases) {
    INFO(operation << " of " << list);
    auto tiny = tiny_program();
    tiny.replace(kGraph, "aten.linear.default", "aten." + operation)
        .replace(kGraph, R"({"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
         {"name": "weight", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1})",
                 R"({"name": "tensors", "arg": {"as_tensors": [)" + list + R"(]}, "kind": 1})")
        .replace(kGraph, "aten.add.Tensor", "aten.add_.Tensor");
    const auto found = words_about(tiny);
    CHECK_THAT(found, Catch::Matchers::ContainsSubstring(refusal));
    CHECK(found.empty() == refusal.empty());
  }
}

TEST_CASE("A change of an input is refused whichever argument it is") {
  struct Case {
    std::string view, argument, change, changed;
  };
  const Case cases[] = {
      {"einsum.default", "tensors", "add_.Tensor", "self"},  // behind the equation
      {"batch_norm.default", "running_mean", "add.Tensor", "self"},
      {"instance_norm.default", "running_var", "add.Tensor", "self"},
      {"rrelu_with_noise.default", "noise", "add.Tensor", "self"},
      {"div.out", "out", "add.Tensor", "self"},
  };
  for (const auto& [view, argument, change, changed] : cases) {
    INFO(view << " " << argument);
    auto tiny = tiny_program();
    tiny.replace(kGraph, "aten.linear.default", "aten." + view)
        .replace(kGraph, R"({"name": "input", "arg": {"as_tensor": {"name": "x"}}, "kind": 1},
         {"name": "weight", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1})",
                 R"({"name": "weight", "arg": {"as_tensor": {"name": "p_w"}}, "kind": 1},
         {"name": ")" +
                     argument + R"(", "arg": {"as_tensor": {"name": "x"}}, "kind": 1})")
        .replace(kGraph, "aten.add.Tensor", "aten." + change);
    CHECK_THAT(words_about(tiny), Catch::Matchers::ContainsSubstring("changes its input 'x'"));
  }
}

TEST_CASE("A change of a tensor's requires_grad is refused, but for tensors that the graph makes") {
  struct Case {
    std::string first, value, second, words;
  };
  const std::string words = "changes whether its ";
  const Case cases[] = {
      {"linear.default", "x", "requires_grad_.default", ""},
      {"view.default", "x", "requires_grad_.default", words + "input 'x' requires a gradient, in operation"},
      {"requires_grad_.default", "x", "add.Tensor", words + "input 'x'"},
      {"detach_.default", "x", "add.Tensor", words + "input 'x'"},
      {"requires_grad_.default", "p_w", "add.Tensor", words + "parameter or buffer 'w'"},
      {"detach.default", "x", "requires_grad_.default", ""},
  };
  for (const auto& [first, value, second, refusal] : cases) {
    INFO(first << " of " << value << ", " << second);
    auto tiny = tiny_program();
    tiny.replace(kGraph, "aten.linear.default", "aten." + first)
        .replace(kGraph, R"("input", "arg": {"as_tensor": {"name": "x"}})",
                 R"("input", "arg": {"as_tensor": {"name": ")" + value + R"("}})")
        .replace(kGraph, "aten.add.Tensor", "aten." + second);
    const auto found = words_about(tiny);
    CHECK_THAT(found, Catch::Matchers::ContainsSubstring(refusal));
    CHECK(found.empty() == refusal.empty());
  }
}

TEST_CASE("A change of a constant is refused, also through a view") {
  auto tiny = tiny_program();
  tiny.replace(kGraph, "aten.linear.default", "aten.view.default")
      .replace(kGraph, R"("input", "arg": {"as_tensor": {"name": "x"}})",
               R"("input", "arg": {"as_tensor": {"name": "c_c"}})")
      .replace(kGraph, "aten.add.Tensor", "aten.add_.Tensor");
  CHECK_THAT(words_about(tiny), Catch::Matchers::ContainsSubstring(
                                    "changes the constant 'c', which is not part of the model's state"));
}
