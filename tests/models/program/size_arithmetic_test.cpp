#include <lockstep/models/program/size_arithmetic.h>

#include <limits>
#include <vector>

#include <lockstep/tests/catch.h>

namespace lockstep::program {
namespace {

using c10::IValue;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();

struct Case {
  const char* target;
  std::vector<IValue> arguments;
  IValue expected;  // what Python prints
};

TEST_CASE("Arithmetic of sizes is Python's") {
  const std::vector<Case> cases{
      {"_operator.floordiv", {-7, 2}, -4},
      {"_operator.floordiv", {7, -2}, -4},
      {"_operator.floordiv", {7.5, 2}, 3.0},
      {"_operator.mod", {-7, 2}, 1},
      {"_operator.mod", {7, -2}, -1},
      {"_operator.mod", {kLeast, -1}, 0},
      {"_operator.mod", {-7.5, 2.0}, .5},
      {"_operator.truediv", {7, 2}, 3.5},
      {"_operator.pow", {2, 10}, 1024},
      {"_operator.pow", {2, -1}, .5},
      {"_operator.pow", {-1, 1000001}, -1},
      {"_operator.pow", {0, 0}, 1},
      {"_operator.lshift", {3, 4}, 48},
      {"_operator.rshift", {-5, 1}, -3},
      {"_operator.lt", {1, 2}, true},
      {"_operator.eq", {2, 2.0}, true},
      {"_operator.and_", {true, false}, false},
      {"_operator.add", {true, 1}, 2},
      {"_operator.neg", {5}, -5},
      {"torch.sym_max", {3, 4}, 4},
      {"torch.sym_min", {3, 4}, 3},
      {"torch.sym_int", {-2.7}, -2},
      {"torch.sym_float", {3}, 3.0},
      {"torch.sym_ite", {false, 1, 2}, 2},
      {"torch.sym_not", {false}, true},
      {"torch.sym_sum", {std::vector<int64_t>{1, 2, 3}}, 6},
      {"math.floor", {-2.5}, -3},
      {"math.ceil", {2.1}, 3},
      {"math.trunc", {-2.9}, -2},
      {"builtins.round", {2.5}, 2},
  };
  for (const auto& one : cases) {
    INFO(one.target);
    const auto compute = size_operation(one.target, one.arguments.size());
    REQUIRE(compute != nullptr);
    const auto result = compute(one.arguments);
    CHECK(result.type()->str() == one.expected.type()->str());
    CHECK(IValue(result) == one.expected);
  }
}

TEST_CASE("Sizes that need more than 64 bits, and divisions by zero, are errors") {
  const std::vector<std::pair<const char*, std::vector<IValue>>> cases{
      {"_operator.add", {kMost, 1}},
      {"_operator.sub", {kLeast, 1}},
      {"_operator.mul", {kMost, 2}},
      {"_operator.neg", {kLeast}},
      {"_operator.floordiv", {kLeast, -1}},
      {"_operator.floordiv", {1, 0}},
      {"_operator.mod", {1, 0}},
      {"_operator.truediv", {1, 0}},
      {"_operator.pow", {3, 1'000'000'000}},
      {"_operator.lshift", {1, 63}},
      {"_operator.lshift", {1, -1}},
      {"torch.sym_int", {1e30}},
      {"torch.sym_sum", {std::vector<int64_t>{kMost, 1}}},
  };
  for (const auto& [target, arguments] : cases) {
    INFO(target);
    CHECK_THROWS_AS(size_operation(target, arguments.size())(arguments), std::runtime_error);
  }
  CHECK(size_operation("_operator.matmul", 2) == nullptr);
  CHECK(size_operation("_operator.add", 3) == nullptr);
}

}  // namespace
}  // namespace lockstep::program
