// Named tensors of rows.
#include <lockstep/tests/catch.h>

#include <lockstep/support/batch.h>
#include <lockstep/support/error.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

Batch tokens() {
  return {{"ids", torch::arange(12).view({4, 3})},
          {"age", torch::arange(4, torch::kFloat64)},
          {"next", torch::arange(12, 24).view({4, 3}), Role::kTarget}};
}

}  // namespace

TEST_CASE("a batch has its tensors by name, by place and by role") {
  const auto batch = tokens();
  CHECK(batch.rows() == 4);
  CHECK(batch.size() == 3);
  CHECK(batch["age"].is_same(batch[1]));
  CHECK(batch.target().is_same(batch["next"]));
  CHECK(to_string(batch.spec()[0]) == "ids Long [n, 3]");
  CHECK(to_string(batch.spec()[2]) == "target next Long [n, 3]");
  const Batch pair(torch::zeros({5, 2}), torch::zeros({5}));
  CHECK(pair.input().is_same(pair["input"]));
  CHECK(pair.target().is_same(pair["target"]));
  CHECK(Batch().rows() == 0);
}

TEST_CASE(
    "a name that a batch does not have, or a role that is not that of one tensor, is told with its names") {
  const auto batch = tokens();
  CHECK_THAT(refusal_and_hint([&] { batch["labels"]; }),
             Catch::Matchers::ContainsSubstring("no tensor named labels") &&
                 Catch::Matchers::ContainsSubstring("ids, age, next"));
  CHECK_THAT(refusal_and_hint([&] { batch.input(); }),
             Catch::Matchers::ContainsSubstring("has 2 inputs, not one") &&
                 Catch::Matchers::ContainsSubstring("ids, age, next"));
  CHECK(refusal_of([] { Batch().target(); }) == "the batch has 0 targets, not one");
}

TEST_CASE("tensors that do not count the same rows are no batch") {
  CHECK(refusal_of([] {
          Batch(torch::zeros({4, 2}), torch::zeros({3}));
        }) == "the batch's input has 4 rows, its target has 3");
  CHECK(refusal_of([] {
          Batch(torch::zeros({4, 2}), torch::zeros({}));
        }) == "the batch's target is one number");
  CHECK(refusal_of([] { Batch(torch::Tensor(), torch::zeros({3})); }) == "the batch's input is undefined");
  CHECK(refusal_of([] {
          Batch{{"a", torch::zeros({1})}, {"a", torch::zeros({1})}};
        }) == "the batch has two tensors named a");
}

TEST_CASE("parts of a batch are views with its names and roles") {
  const auto batch = tokens();
  const auto part = batch.narrow(1, 2);
  CHECK(part.rows() == 2);
  CHECK(part["ids"].is_alias_of(batch["ids"]));
  CHECK(part["ids"].equal(torch::arange(3, 9).view({2, 3})));
  CHECK(part.target().equal(torch::arange(15, 21).view({2, 3})));
  CHECK(batch.narrow(4, 0).rows() == 0);
  CHECK(batch.to(torch::kCPU)["age"].is_same(batch["age"]));
}

TEST_CASE("specs are alike with the same names, types and roles, whatever the shapes") {
  const auto spec = tokens().spec();
  const auto with = [&](const auto& change) {
    auto other = spec;
    change(other);
    return alike(spec, other);
  };
  CHECK(with([](auto&) {}));
  CHECK(with([](auto& other) { other[0].row_shape = {7}; }));
  CHECK_FALSE(with([](auto& other) { other[0].name = "id"; }));
  CHECK_FALSE(with([](auto& other) { other[1].dtype = torch::kFloat32; }));
  CHECK_FALSE(with([](auto& other) { other[2].role = Role::kInput; }));
  CHECK_FALSE(with([](auto& other) { other.pop_back(); }));
}

TEST_CASE("what a batch that is not kept gives is a value: a reference would dangle") {
  using Temporary = decltype(tokens());
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Temporary>().input()), torch::Tensor>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Temporary>().target()), torch::Tensor>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Temporary>()["ids"]), torch::Tensor>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Temporary>()[size_t{0}]), torch::Tensor>);
  STATIC_REQUIRE(std::is_same_v<decltype(std::declval<Temporary>().spec()), BatchSpec>);
  const auto& ids = tokens()["ids"];
  CHECK(ids.equal(tokens()[0]));
  size_t parts = 0;
  for (const auto& part : tokens().spec()) parts += part.name.empty() ? 0 : 1;
  CHECK(parts == tokens().size());
}
