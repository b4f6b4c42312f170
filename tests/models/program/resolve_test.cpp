// Refusals that need the schemas of torch's operations.
#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

#include <lockstep/models/program.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/models/program/tiny_program.h>
#include <lockstep/tests/support/files.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep {
namespace {

using testing::refusal_of;

std::string tensor_argument(const std::string& name, const std::string& value) {
  return R"({"name": ")" + name + R"(", "arg": {"as_tensor": {"name": ")" + value + R"("}}, "kind": 1})";
}

// The refusal of the tiny program whose last operation is this one with these arguments.
std::string refusal_of_operation(const std::string& target, const std::string& arguments) {
  auto tiny = testing::tiny_program();
  tiny.replace("models/model.json", "aten.add.Tensor", "aten." + target)
      .replace("models/model.json", R"({"name": "self", "arg": {"as_tensor": {"name": "linear"}}, "kind": 1},
         {"name": "other", "arg": {"as_tensor": {"name": "b_b"}}, "kind": 1})",
               arguments);
  const testing::TempFolder folder;
  testing::write_file(folder / "tiny.pt2", tiny.bytes());
  return refusal_of<WeightsError>([&] { read_program(folder / "tiny.pt2"); });
}

TEST_CASE("Operations whose arguments do not fit torch's schema are refused with their line of Python") {
  struct Case {
    std::string target, arguments, words;
  };
  const auto self = tensor_argument("self", "linear"), other = tensor_argument("other", "b_b");
  const std::string one = R"({"name": "dim", "arg": {"as_int": 1}, "kind": 1})";
  const std::vector<Case> cases{
      {"add.Nothing", self + ", " + other, "calls an operation that this LibTorch does not have"},
      {"add.Tensor", self, "does not give the argument 'other'"},
      {"add.Tensor", self + ", " + self + ", " + other, "gives the argument 'self' twice"},
      {"add.Tensor", self + ", " + other + ", " + one,
       "gives an argument that is not in the schema aten::add"},
      {"sum.default", self + R"(, {"name": "dtype", "arg": {"as_int": 7}, "kind": 1})",
       "gives the argument 'dtype' another value than"},
      {"add_.Tensor", R"({"name": "self", "arg": {"as_float": 2.0}, "kind": 1}, )" + other,
       "changes 'self', which is no tensor"},
      // Overloads that write into a tensor may give it other sizes, whatever their name is.
      {"max.dim_max",
       self + ", " + one + ", " + tensor_argument("max", "b_b") + ", " + tensor_argument("max_values", "b_p"),
       "writes its result into 'max', which lockstep does not run"},
      {"linalg_inv_ex.inverse",
       tensor_argument("A", "linear") + ", " + tensor_argument("inverse", "b_b") + ", " +
           tensor_argument("info", "b_p"),
       "writes its result into 'inverse'"},
  };
  for (const auto& [target, arguments, words] : cases) {
    INFO(target << ": " << words);
    const auto refusal = refusal_of_operation(target, arguments);
    CHECK_THAT(refusal, Catch::Matchers::ContainsSubstring(words));
    CHECK_THAT(refusal, Catch::Matchers::ContainsSubstring("net.py, line 8: return y + self.b"));
  }
}

TEST_CASE("Whole numbers that become another default type than torch's own are refused with their line") {
  const auto refusal = testing::refusal_and_hint<WeightsError>(
      [] { read_program(testing::fixture_path("default_of_whole_numbers")); });
  for (const char* words : {"gives the type Double because it was torch's default type", "aten::div",
                            "make_fixtures.py, line ", "torch.arange(4) / 3", "x.to(torch.float64)"}) {
    CHECK_THAT(refusal, Catch::Matchers::ContainsSubstring(words));
  }
}

}  // namespace
}  // namespace lockstep
