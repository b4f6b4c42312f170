#include <torch/nn/module.h>

#include <algorithm>

#include <lockstep/models/program/parts.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/support/refusal.h>
#include <lockstep/tests/support/temp_folder.h>

namespace lockstep {
namespace {

using testing::Fixture;

// A replica whose weights are not those of the file.
std::shared_ptr<ProgramModule> changed(const Fixture& fixture) {
  auto module = std::make_shared<ProgramModule>(fixture.program);
  const torch::NoGradGuard no_grad;
  int64_t number = 0;
  for (const auto& [name, tensor] : module->state_dict()) {
    if (tensor.is_floating_point()) tensor.mul_(1. + .25 / static_cast<double>(++number));
  }
  return module;
}

TEST_CASE("A saved program has the new weights in both of its graphs, and all else of the file") {
  const auto name = GENERATE(from_range(testing::kFixtures));
  INFO(name);
  const Fixture fixture(name);
  const auto module = changed(fixture);
  const testing::TempFolder folder;
  save_program(*fixture.program, module->state_dict(), folder / "net.pt2");
  const auto saved = read_program(folder / "net.pt2");
  ProgramModule again(saved);
  const auto own = module->state_dict(), read = again.state_dict();
  REQUIRE(own.size() == read.size());
  for (size_t i = 0; i < own.size(); ++i) {
    INFO(own[i].name);
    CHECK(read[i].name == own[i].name);
    CHECK(read[i].tensor.equal(own[i].tensor));
    CHECK(read[i].tensor.strides() == own[i].tensor.strides());
  }
  const auto& before = fixture.program->parts().file.archive->records();
  const auto& after = saved->parts().file.archive->records();
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) {
    CHECK(before[i].name == after[i].name);
    const bool weight =
        before[i].name.starts_with("data/weights/weight") || before[i].name.starts_with("data/weights/eval");
    if (!weight) CHECK(std::ranges::equal(before[i].bytes, after[i].bytes));
  }
  CHECK(saved->digest() != fixture.program->digest());
}

TEST_CASE("A program saved with its own weights has the same records") {
  const Fixture fixture("conv_bn");
  const testing::TempFolder folder;
  save_program(*fixture.program, ProgramModule(fixture.program).state_dict(), folder / "net.pt2");
  const auto& before = fixture.program->parts().file.archive->records();
  const auto saved = read_program(folder / "net.pt2");
  const auto& after = saved->parts().file.archive->records();
  REQUIRE(before.size() == after.size());
  for (size_t i = 0; i < before.size(); ++i) CHECK(std::ranges::equal(before[i].bytes, after[i].bytes));
}

TEST_CASE("A program is not saved with weights of another one") {
  const Fixture fixture("mlp");
  const testing::TempFolder folder;
  const auto save = [&](const std::vector<NamedTensor>& weights) {
    return testing::refusal_of<WeightsError>(
        [&] { save_program(*fixture.program, weights, folder / "net.pt2"); });
  };
  auto weights = ProgramModule(fixture.program).state_dict();
  auto fewer = weights;
  fewer.pop_back();
  CHECK_THAT(save(fewer), Catch::Matchers::ContainsSubstring("4.bias"));
  weights[0].tensor = torch::zeros({3, 3});
  CHECK_THAT(save(weights),
             Catch::Matchers::ContainsSubstring("0.weight") && Catch::Matchers::ContainsSubstring("[3, 3]"));
  CHECK_FALSE(std::filesystem::exists(folder / "net.pt2"));
}

}  // namespace
}  // namespace lockstep
