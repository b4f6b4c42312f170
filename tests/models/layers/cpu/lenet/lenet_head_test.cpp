// LeNet's linear layers by lockstep's kernels, against torch's in double.
#include <torch/autograd.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <string>
#include <vector>

#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/head.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/tensor_data.h>
#include <lockstep/tests/models/lenet_cases.h>
#include <lockstep/tests/models/needs_capability.h>
#include <lockstep/tests/support/central_differences.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Features as pooling returns them, at least 0, with parameters and the gradient of the logits, different in
// every element.
struct HeadCase {
  explicit HeadCase(int64_t rows) {
    torch::manual_seed(rows);
    inputs = {normal({rows, 800}, 1).relu()};
    const auto params = normal_linear();
    inputs.insert(inputs.end(), params.begin(), params.end());
    gradient = normal({rows, 10}, 1);
  }

  std::vector<torch::Tensor> inputs;  // features, W3, b3, W4, b4
  torch::Tensor gradient;
};

// Returns the logits, then the gradients of all five inputs.
template <class Function>
std::vector<torch::Tensor> logits_and_gradients(const HeadCase& test, torch::ScalarType type,
                                                const Function& head) {
  std::vector<torch::Tensor> inputs;
  for (const auto& input : test.inputs)
    inputs.push_back(input.to(type, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
  std::vector<torch::Tensor> result{head(inputs)};
  for (const auto& gradient : torch::autograd::grad({result[0]}, inputs, {test.gradient.to(type)})) {
    result.push_back(gradient);
  }
  return result;
}

std::vector<torch::Tensor> torch_head(const HeadCase& test, torch::ScalarType type) {
  return logits_and_gradients(test, type, [](const auto& in) {
    return torch::mm(torch::relu(torch::mm(in[0], in[1]) + in[2]), in[3]) + in[4];
  });
}

template <class T>
std::vector<torch::Tensor> lockstep_head(const HeadCase& test, const LeNetLayers<T>& layers) {
  return logits_and_gradients(test, kScalarType<T>, [&](const auto& in) {
    return lenet_head<T>(in[0], in[1], in[2], in[3], in[4], layers);
  });
}

// Around 6 rows, which registers hold at once; 16, from which on threads share them; 128, which a call takes.
constexpr int64_t kHeadRows[] = {1, 2, 5, 6, 7, 13, 31, 32, 33, 127, 128, 129, 257};

void check_head(CpuCapability capability) {
  NEEDS_CAPABILITY(capability);
  for (const auto rows : kHeadRows) {
    const HeadCase test(rows);
    const auto exact = torch_head(test, torch::kFloat64), by_torch = torch_head(test, torch::kFloat32);
    const auto found = lockstep_head(test, *cpu_kernels_of(capability).winograd_lenet);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO(rows << " rows, " << (i == 0 ? "logits" : "gradient " + std::to_string(i))
                << ", torch's own error " << relative_error(by_torch[i], exact[i]));
      CHECK(relative_error(found[i], exact[i]) <= std::max(1e-6, 3 * relative_error(by_torch[i], exact[i])));
    }
  }
}

}  // namespace

TEST_CASE("lockstep's linear layers of LeNet in double are torch's, forward and backward") {
  for (const auto rows : kHeadRows) {
    INFO(rows << " rows");
    const HeadCase test(rows);
    const auto exact = torch_head(test, torch::kFloat64);
    const auto found = lockstep_head(test, *cpu_kernels<double>().winograd_lenet);
    for (size_t i = 0; i < exact.size(); ++i) CHECK(relative_error(found[i], exact[i]) < 1e-13);
  }
}

TEST_CASE("the gradients of lockstep's linear layers of LeNet in double are their central differences") {
  const HeadCase test(7);
  const auto head = [](const auto& in) {
    return lenet_head<double>(in[0], in[1], in[2], in[3], in[4], *cpu_kernels<double>().winograd_lenet);
  };
  CHECK(worst_derivative(head, test.inputs, test.gradient, 1e-7) < 1e-7);
}

TEST_CASE("lockstep's linear layers of LeNet in float: AVX-512") { check_head(CpuCapability::kAvx512); }
TEST_CASE("lockstep's linear layers of LeNet in float: AVX2") { check_head(CpuCapability::kAvx2); }
TEST_CASE("lockstep's linear layers of LeNet in float: any CPU") { check_head(CpuCapability::kPortable); }

TEST_CASE("no rows give no logits, and gradients of zeros") {
  const HeadCase test(0);
  const auto found = lockstep_head(test, *cpu_kernels<float>().winograd_lenet);
  CHECK(found[0].sizes() == torch::IntArrayRef{0, 10});
  CHECK(found[1].sizes() == torch::IntArrayRef{0, 800});
  for (size_t i = 2; i < found.size(); ++i) CHECK(max_abs(found[i]) == 0);
}

TEST_CASE("lockstep's linear layers of LeNet refuse other shapes, and the error names both") {
  const HeadCase test(3);
  const auto& in = test.inputs;
  const auto& layers = *cpu_kernels<double>().winograd_lenet;
  CHECK_THROWS_WITH(lenet_head<double>(in[0], in[3], in[2], in[3], in[4], layers),
                    ContainsSubstring("[800, 128]") && ContainsSubstring("[128, 10]"));
  CHECK_THROWS_WITH(lenet_head<double>(in[0], in[1], in[2].to(torch::kFloat32), in[3], in[4], layers),
                    ContainsSubstring("Float") && ContainsSubstring("Double"));
}
