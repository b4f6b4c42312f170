#include <torch/nn/module.h>

#include <algorithm>

#include <lockstep/models/batch_norm.h>
#include <lockstep/models/load_weights.h>
#include <lockstep/support/module_tensors.h>
#include <lockstep/tests/catch.h>
#include <lockstep/tests/models/program/fixture.h>
#include <lockstep/tests/support/refusal.h>

namespace lockstep {
namespace {

using testing::Fixture;
using Names = std::vector<std::string>;

Names names_of(const std::vector<NamedTensor>& tensors) {
  Names names;
  for (const auto& one : tensors) names.push_back(one.name);
  return names;
}

TEST_CASE("Parameters have Python's names in Python's order, and the state has its names") {
  const auto name = GENERATE(from_range(testing::kFixtures));
  INFO(name);
  const Fixture fixture(name);
  const ProgramModule module(fixture.program);
  CHECK(names_of(distinct_parameters(module)) == fixture.numbers.at("parameters").get<Names>());
  // torch.export writes parameters, then buffers, and the names of a tied weight together.
  auto state = names_of(module.state_dict()), python = fixture.numbers.at("state").get<Names>();
  std::ranges::sort(state);
  std::ranges::sort(python);
  CHECK(state == python);
}

TEST_CASE("A tied weight is one parameter, and has both names in the state") {
  const Fixture fixture("lm");
  const ProgramModule module(fixture.program);
  const auto state = module.state_dict();
  const auto find = [&](const char* name) {
    return std::ranges::find(state, name, &NamedTensor::name)->tensor;
  };
  CHECK(find("tok.weight").is_same(find("head.weight")));
  const auto parameters = module.named_parameters();
  CHECK(parameters.contains("tok.weight"));
  CHECK_FALSE(parameters.contains("head.weight"));
  int64_t numbers = 0;
  for (const auto& parameter : module.parameters()) numbers += parameter.numel();
  CHECK(fixture.program->parameter_count() == numbers);
}

TEST_CASE("Weights are loaded under any name of a tied one, and refused under others") {
  const Fixture fixture("lm");
  ProgramModule module(fixture.program);
  std::vector<NamedTensor> weights;
  for (const auto& [name, tensor] : module.state_dict()) {
    if (name != "tok.weight") weights.push_back({name, torch::full_like(tensor, 3).detach()});
  }
  module.load_state_dict(weights);
  for (const auto& parameter : module.parameters()) CHECK(parameter.eq(3).all().item<bool>());
  weights.push_back({"other", torch::zeros(1)});
  CHECK_THAT(testing::refusal_of<WeightsError>([&] { module.load_state_dict(weights); }),
             Catch::Matchers::ContainsSubstring("other"));
}

TEST_CASE("Weights are no views, whose casts autocast would not cache") {
  const Fixture fixture("gru");
  const ProgramModule module(fixture.program);
  for (const auto& [name, tensor] : module.state_dict()) {
    INFO(name);
    CHECK_FALSE(tensor.is_view());
  }
}

TEST_CASE("Frozen parameters of Python are frozen") {
  const ProgramModule module(Fixture("frozen_layers").program);
  for (const auto& item : module.named_parameters())
    CHECK(item.value().requires_grad() == item.key().starts_with("2."));
}

TEST_CASE("Buffers that are not persistent are buffers of the module, and not in the state") {
  const ProgramModule module(Fixture("encoder").program);
  CHECK(module.named_buffers().contains("scale"));
  CHECK(std::ranges::count(module.state_dict(), "scale", &NamedTensor::name) == 0);
}

TEST_CASE("Batch norms of Python are lockstep's, with their options, and frozen ones are not") {
  const ProgramModule module(Fixture("frozen_norm").program);
  const auto modules = module.named_modules("", /*include_self=*/false);
  CHECK(std::dynamic_pointer_cast<BatchNorm2dImpl>(modules["1"]) == nullptr);  // frozen
  const auto norm = std::dynamic_pointer_cast<BatchNorm2dImpl>(modules["4"]);
  REQUIRE(norm != nullptr);
  CHECK(norm->options.num_features() == 4);
  CHECK(norm->options.momentum() == .1);
  CHECK(norm->options.eps() == 1e-5);
  CHECK(std::dynamic_pointer_cast<BatchNorm1dImpl>(
      ProgramModule(Fixture("norm_of_rows").program).named_modules("", /*include_self=*/false)["1"]));
}

TEST_CASE("A batch norm that is set to evaluation keeps its averages while the others train") {
  const Fixture fixture("conv_bn");
  ProgramModule module(fixture.program);
  auto modules = module.named_modules("", /*include_self=*/false);
  modules["0.bn1"]->eval();
  const auto before = module.named_buffers();
  std::vector<torch::Tensor> copies;
  for (const auto& item : before) copies.push_back(item.value().clone());
  module.forward(fixture.batch(0)[0]);
  size_t i = 0;
  for (const auto& item : before) {
    INFO(item.key());
    CHECK(item.value().equal(copies[i++]) == item.key().starts_with("0.bn1."));
  }
}

TEST_CASE("A copy of a replica has weights of its own, with the same values and mode") {
  const Fixture fixture("conv_bn");
  ProgramModule module(fixture.program);
  module.forward(fixture.batch(0)[0]);
  module.eval();
  const auto copy = std::dynamic_pointer_cast<ProgramModule>(module.clone());
  REQUIRE(copy != nullptr);
  CHECK_FALSE(copy->is_training());
  const auto own = module.state_dict(), others = copy->state_dict();
  REQUIRE(own.size() == others.size());
  for (size_t i = 0; i < own.size(); ++i) {
    CHECK(own[i].tensor.equal(others[i].tensor));
    CHECK(own[i].tensor.data_ptr() != others[i].tensor.data_ptr());
    CHECK(own[i].tensor.requires_grad() == others[i].tensor.requires_grad());
  }
  CHECK(module.forward(fixture.batch(1)[0]).equal(copy->forward(fixture.batch(1)[0])));
}

TEST_CASE("A copy of a replica has the mode of each of its modules") {
  ProgramModule module(Fixture("conv_bn").program);
  auto modules = module.named_modules("", /*include_self=*/false);
  modules["0.bn1"]->eval();
  for (const auto& copy : module.clone()->named_modules("", /*include_self=*/false)) {
    INFO(copy.key());
    CHECK(copy.value()->is_training() == (copy.key() != "0.bn1"));
  }
  module.eval();
  modules["0.bn2"]->train();
  for (const auto& copy : module.clone()->named_modules("", /*include_self=*/false)) {
    INFO(copy.key());
    CHECK(copy.value()->is_training() == (copy.key() == "0.bn2"));
  }
}

TEST_CASE("Constants of a module that was in a lower precision have all of their digits again") {
  // The file has 1.1, which bf16 rounds.
  const auto fixture = Fixture("constants");
  ProgramModule module(fixture.program);
  const torch::NoGradGuard no_grad;
  for (const auto& item : module.named_parameters()) item.value().zero_();
  for (const auto& item : module.named_parameters()) item.value().add_(item.key() == "a.bias" ? 1 : 0);
  const auto x = torch::ones({1, 4});
  const auto before = module.forward(x).clone();
  module.to(torch::kBFloat16);
  module.forward(x);
  module.to(torch::kFloat32);
  CHECK(module.forward(x).equal(before));
}

TEST_CASE("A counter of batches in a region belongs to the norm behind it") {
  const Fixture fixture("counted_apart");
  ProgramModule module(fixture.program);
  const auto counter = module.named_buffers()["bn.num_batches_tracked"];
  module.forward(fixture.batch(0)[0]);
  CHECK(counter.item<int64_t>() == 1);
  module.named_modules("", /*include_self=*/false)["bn"]->eval();
  module.forward(fixture.batch(0)[0]);
  CHECK(counter.item<int64_t>() == 1);
  CHECK_FALSE(fixture.program->writes_buffers());
}

TEST_CASE("A program that changes buffers by other operations than batch norms says so") {
  for (const auto* name : {"assigned_buffer", "instance_norm", "view_of_buffer"}) {
    INFO(name);
    CHECK(Fixture(name).program->writes_buffers());
  }
  for (const auto* name : {"mlp", "conv_bn", "functional_norm", "norm_of_rows", "no_grad"}) {
    INFO(name);
    CHECK_FALSE(Fixture(name).program->writes_buffers());
  }
  CHECK(Fixture("functional_norm").program->unmatched_norms().size() == 1);
  CHECK(Fixture("root_norm").program->unmatched_norms().size() == 1);
}

TEST_CASE("A program says what it takes, returns and does") {
  const auto program = Fixture("dict_output").program;
  REQUIRE(program->inputs().size() == 1);
  CHECK(program->inputs()[0].name == "x");
  CHECK(program->inputs()[0].sizes == std::vector<int64_t>{-1, 6});
  CHECK(program->inputs()[0].dtype == torch::kFloat32);
  Names outputs;
  for (const auto& output : program->outputs()) outputs.push_back(output.name);
  CHECK(outputs == Names{"hidden", "logits", "more.0"});
  CHECK(program->parameter_count() == 6 * 12 + 12 + 12 * 5 + 5);
  CHECK(program->operations().at("aten::linear") == 2);
  CHECK(program->digest().size() == 64);
  CHECK(program->torch_version().starts_with("2."));
  CHECK(program->has_eval_graph());
  CHECK(program->captures());
  CHECK_FALSE(program->random());
  CHECK_FALSE(program->has_batch_norm());
  CHECK(Fixture("dropout").program->random());
  CHECK(Fixture("conv_bn").program->has_batch_norm());
  CHECK(Fixture("conv_bn").program->unmatched_norms().empty());
  CHECK_FALSE(Fixture("frozen_layers").program->random());
}

}  // namespace
}  // namespace lockstep
