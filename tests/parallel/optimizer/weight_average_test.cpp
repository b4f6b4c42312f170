// Averages of weights, beside torch's own.
#include <torch/types.h>

#include <lockstep/tests/catch.h>

#include <cstdint>
#include <string>
#include <vector>

#include <lockstep/parallel/optimizer/weight_average.h>
#include <lockstep/tests/parallel/optimizer/flat_memory.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// The averages after this step, of two parameters with 4 and 3 numbers, by torch_average.py.
struct TorchAverage {
  torch::ScalarType dtype;
  double decay;
  int step;
  std::vector<double> numbers;
};

// clang-format off
const std::vector<TorchAverage> kTorchAverages = {
#include <lockstep/tests/parallel/optimizer/torch_average.inc>
};
// clang-format on

const std::vector<std::string> kNames = {"p0", "p1"};

FlatMemory two_parameters(torch::ScalarType dtype) {
  return FlatMemory({torch::zeros({4}, dtype).requires_grad_(), torch::zeros({3}, dtype).requires_grad_()});
}

// The numbers of torch_average.py.
void write_values(const FlatMemory& memory, int step) {
  const torch::NoGradGuard no_grad;
  for (size_t k = 0; k < memory.params().size(); ++k) {
    auto param = memory.params()[k];
    const auto place = 7 * torch::arange(param.numel(), torch::kInt64) + 13 * step + 5 * static_cast<int>(k);
    param.copy_((place.remainder(32) - 16).to(torch::kFloat64) / 8);
  }
}

torch::Tensor numbers_of(const std::vector<NamedTensor>& tensors) {
  std::vector<torch::Tensor> parts;
  for (const auto& [name, tensor] : tensors) parts.push_back(tensor.to(torch::kFloat64));
  return torch::cat(parts);
}

}  // namespace

TEST_CASE("the averages of every step are those of torch's AveragedModel") {
  for (size_t i = 0; i < kTorchAverages.size();) {
    const auto dtype = kTorchAverages[i].dtype;
    const double decay = kTorchAverages[i].decay;
    const auto memory = two_parameters(dtype);
    WeightAverage average(decay);
    average.hold(memory.order(kNames), memory.flat());
    CHECK(average.tensors().empty());
    for (int step = 0; i < kTorchAverages.size() && kTorchAverages[i].step == step; ++step, ++i) {
      INFO(torch::toString(dtype) << ", decay " << decay << ", step " << step);
      write_values(memory, step);
      average.update();
      const auto expected = torch::tensor(kTorchAverages[i].numbers, torch::kFloat64);
      const auto found = numbers_of(average.tensors());
      const double rounding = dtype == torch::kFloat32 ? 3e-7 : 1e-15;
      CHECK((found - expected).abs().max().item<double>() <= rounding);
    }
  }
}

TEST_CASE("a parameter keeps its average when others are held, and a new one begins with its value") {
  const auto memory = two_parameters(torch::kFloat64);
  WeightAverage average(.5);
  average.hold(memory.order(kNames), memory.flat());
  write_values(memory, 0);
  average.update();
  write_values(memory, 1);
  average.update();
  const auto before = average.tensors()[1].tensor.clone();

  const FlatMemory other({torch::ones({3}, torch::kFloat64).requires_grad_(),
                          torch::full({2}, 7, torch::kFloat64).requires_grad_()});
  average.hold(other.order({"p1", "p2"}), other.flat());
  const auto after = average.tensors();
  REQUIRE(after.size() == 2);
  CHECK(after[0].name == "p1");
  CHECK(after[0].tensor.equal(before));
  CHECK(after[1].tensor.equal(torch::full({2}, 7, torch::kFloat64)));
  average.update();
  CHECK(average.tensors()[0].tensor.equal((before + 1) / 2));
}

TEST_CASE("averages stay as they are where other parameters cannot be held") {
  const auto memory = two_parameters(torch::kFloat64);
  WeightAverage average(.5);
  average.hold(memory.order(kNames), memory.flat());
  write_values(memory, 0);
  average.update();
  write_values(memory, 1);
  CHECK_THROWS(average.hold(memory.order({"q0", "q1"}), /*flat=*/{}));
  average.update();
  const auto found = average.tensors();
  CHECK(found.at(0).name == "p0");
  const auto expected = memory.params()[0].detach().clone();
  write_values(memory, 0);
  CHECK(found[0].tensor.equal((expected + memory.params()[0].detach()) / 2));
}

TEST_CASE("while averages are in place the parameters are these, and then what they were, bit by bit") {
  const auto memory = two_parameters(torch::kFloat32);
  write_values(memory, 3);
  const auto trained = memory.flat().clone();
  const auto averages = torch::rand_like(trained);
  const PartBuffer buffer(memory.order(kNames));
  buffer.read_from(averages);
  const auto bf16 = trained.to(torch::kBFloat16);
  {
    const AveragesInPlace in_place(memory.flat(), buffer, bf16);
    CHECK(memory.flat().equal(averages));
    CHECK(bf16.equal(averages.to(torch::kBFloat16)));
  }
  CHECK(memory.flat().equal(trained));
  CHECK(bf16.equal(trained.to(torch::kBFloat16)));
  write_values(memory, 4);  // takes effect in bf16 after the next update, not earlier
  { const AveragesInPlace in_place(memory.flat(), buffer, bf16); }
  CHECK(bf16.equal(trained.to(torch::kBFloat16)));
  write_values(memory, 3);
  { const AveragesInPlace without_bf16(memory.flat(), buffer, {}); }
  CHECK(memory.flat().equal(trained));
}
