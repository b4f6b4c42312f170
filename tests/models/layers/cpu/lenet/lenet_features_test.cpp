// LeNet's convolutional layers by lockstep's kernels, against torch's in double.
#include <lockstep/tests/catch.h>
#include <torch/autograd.h>
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/features.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/error.h>
#include <lockstep/support/tensor_data.h>
#include <lockstep/tests/models/lenet_cases.h>
#include <lockstep/tests/models/needs_capability.h>
#include <lockstep/tests/support/central_differences.h>
#include <lockstep/tests/support/compare.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

// Images in [0, 1], filters, biases and the gradient of the features, different in every element.
struct FeaturesCase {
  explicit FeaturesCase(int64_t rows) {
    torch::manual_seed(rows);
    X = random_images(rows);
    params = normal_filters();
    for (const auto& param : params) param.requires_grad_();
    gradient = normal({rows, 800}, 1);
  }

  torch::Tensor X, gradient;
  Tensors params;
};

struct FeaturesAndGradients {
  torch::Tensor features;
  std::vector<torch::Tensor> gradients;
};

struct Outputs {
  torch::Tensor first, second, features;  // of the first and the second convolution; after pooling
};
Outputs torch_outputs(const torch::Tensor& X, const std::vector<torch::Tensor>& params) {
  const auto first = torch::conv2d(X, params[0], params[1]);
  const auto second = torch::conv2d(torch::avg_pool2d(torch::relu(first), 2, 2), params[2], params[3]);
  return {first, second, torch::avg_pool2d(torch::relu(second), 2, 2).flatten(1)};
}

// Sets the gradient to 0 for rows with an output so close to 0 that rounding in float decides whether it
// passes ReLU: there the gradients differ by all that the output passes on. Such rows are few.
void leave_out_undecided(FeaturesCase& test) {
  const auto outputs = torch_outputs(test.X, test.params);
  const auto near_zero = [](const torch::Tensor& values) {
    return (values.detach().abs() < 2e-6 * values.detach().abs().max()).flatten(1).any(1);
  };
  const auto undecided = near_zero(outputs.first) | near_zero(outputs.second);
  CHECK(undecided.sum().item<int64_t>() <= 1 + test.X.size(0) / 4);
  test.gradient.masked_fill_(undecided.unsqueeze(1), 0);
}

// Runs features(images, parameters) in this type.
template <class Features>
FeaturesAndGradients with_gradients(const FeaturesCase& test, torch::ScalarType type,
                                    const Features& features) {
  std::vector<torch::Tensor> params;
  for (const auto& param : test.params) params.push_back(param.detach().to(type).requires_grad_());
  const auto h = features(test.X.to(type), params);
  return {h, torch::autograd::grad({h}, params, {test.gradient.to(type)})};
}

FeaturesAndGradients by_torch(const FeaturesCase& test, torch::ScalarType type) {
  return with_gradients(test, type,
                        [](const auto& X, const auto& params) { return torch_outputs(X, params).features; });
}

template <class T>
FeaturesAndGradients by(const LeNetLayers<T>& layers, const FeaturesCase& test) {
  return with_gradients(test, kScalarType<T>, [&](const auto& X, const auto& params) {
    return lenet_features<T>(X, params[0], params[1], params[2], params[3], layers);
  });
}

// Returns the relative_error() of the features and of each gradient.
std::vector<double> errors(const FeaturesAndGradients& result, const FeaturesAndGradients& expected) {
  std::vector<double> all{relative_error(result.features, expected.features)};
  for (size_t i = 0; i < expected.gradients.size(); ++i) {
    all.push_back(relative_error(result.gradients[i], expected.gradients[i]));
  }
  return all;
}

// Around groups of 4, 8 and 16 images, and around the images that backward takes at once.
constexpr int64_t kRows[] = {1, 3, 5, 15, 16, 17, 63, 64, 65, 97, 257};

void check_float(CpuCapability capability) {
  NEEDS_CAPABILITY(capability);
  const auto& kernels = cpu_kernels_of(capability);
  for (const auto rows : kRows) {
    FeaturesCase test(rows);
    leave_out_undecided(test);
    const auto exact = by_torch(test, torch::kFloat64);
    const auto of_torch = errors(by_torch(test, torch::kFloat32), exact);
    const auto direct = errors(by(*kernels.direct_lenet, test), exact);
    const auto winograd = errors(by(*kernels.winograd_lenet, test), exact);
    for (size_t i = 0; i < of_torch.size(); ++i) {
      INFO(rows << " rows, " << (i == 0 ? "features" : "gradient " + std::to_string(i))
                << ", torch's own error " << of_torch[i]);
      CHECK(direct[i] <= std::max(1e-6, 3 * of_torch[i]));
      CHECK(winograd[i] <= std::max(1e-6, 5 * of_torch[i]));
    }
  }
}

}  // namespace

TEST_CASE("lockstep's layers of LeNet in double are torch's, forward and backward") {
  for (const auto rows : kRows) {
    const FeaturesCase test(rows);
    const auto expected = by_torch(test, torch::kFloat64);
    for (const auto* layers : {cpu_kernels<double>().direct_lenet, cpu_kernels<double>().winograd_lenet}) {
      INFO(rows << " rows");
      for (const auto error : errors(by(*layers, test), expected)) CHECK(error < 1e-13);
    }
  }
}

TEST_CASE("the gradients of lockstep's layers of LeNet in double are their central differences") {
  const FeaturesCase test(5);
  for (const auto* layers : {cpu_kernels<double>().direct_lenet, cpu_kernels<double>().winograd_lenet}) {
    const auto features = [&](const auto& in) {
      return lenet_features<double>(test.X, in[0], in[1], in[2], in[3], *layers);
    };
    CHECK(worst_derivative(features, test.params, test.gradient, 1e-8) <
          1e-6);  // larger steps cross the bend of a ReLU
  }
}

TEST_CASE("lockstep's layers of LeNet in float: AVX-512") { check_float(CpuCapability::kAvx512); }
TEST_CASE("lockstep's layers of LeNet in float: AVX2") { check_float(CpuCapability::kAvx2); }
TEST_CASE("lockstep's layers of LeNet in float: any CPU") { check_float(CpuCapability::kPortable); }

// Each output on the other side of 0 changes a gradient; many of them would mean wrong kernels, not rounding.
TEST_CASE("rounding puts few of LeNet's outputs on the other side of 0") {
  const FeaturesCase test(128);
  const auto exact = by_torch(test, torch::kFloat64);
  for (const auto* layers : {cpu_kernels<float>().direct_lenet, cpu_kernels<float>().winograd_lenet}) {
    for (const auto error : errors(by(*layers, test), exact)) CHECK(error < 1e-2);
  }
}

TEST_CASE("no rows give no features, and gradients of zeros") {
  const FeaturesCase test(0);
  const auto result = by(*cpu_kernels<float>().winograd_lenet, test);
  CHECK(result.features.sizes() == torch::IntArrayRef{0, 800});
  for (const auto& gradient : result.gradients) CHECK(max_abs(gradient) == 0);
}

TEST_CASE("two graphs of LeNet's features at once have their own images") {
  const FeaturesCase test(37);
  const auto& layers = *cpu_kernels<double>().winograd_lenet;
  const auto features = [&](const torch::Tensor& X) {
    return lenet_features<double>(X, test.params[0], test.params[1], test.params[2], test.params[3], layers);
  };
  const auto alone = torch::autograd::grad({features(test.X)}, test.params, {test.gradient});
  const auto first = features(test.X), second = features(test.X.flip(0));
  const auto of_second = torch::autograd::grad({second}, test.params, {test.gradient.flip(0)});
  const auto of_first = torch::autograd::grad({first}, test.params, {test.gradient});
  for (size_t i = 0; i < alone.size(); ++i) {
    CHECK(torch::equal(of_first[i], alone[i]));
    CHECK(max_difference(of_second[i], alone[i]) <=
          1e-12 * max_abs(alone[i]));  // the same rows in another order
  }
}

TEST_CASE("lockstep's kernels of LeNet refuse what they cannot compute") {
  const auto X = torch::rand({2, 1, 28, 28});
  CHECK(lenet_features_take(X));
  CHECK_FALSE(lenet_features_take(X.to(torch::kBFloat16)));
  auto wanted = torch::rand({2, 1, 28, 28}).requires_grad_();
  CHECK_FALSE(lenet_features_take(wanted));
  {
    const torch::NoGradGuard no_gradient;
    CHECK(lenet_features_take(wanted));
  }
  const FeaturesCase test(2);
  const auto& layers = *cpu_kernels<double>().winograd_lenet;
  const auto of = [&](const torch::Tensor& images, const torch::Tensor& W2) {
    return lenet_features<double>(images, test.params[0], test.params[1], W2, test.params[3], layers);
  };
  CHECK_THROWS_WITH(of(torch::rand({2, 1, 27, 28}, torch::kFloat64), test.params[2]),
                    ContainsSubstring("[2, 1, 27, 28]"));
  CHECK_THROWS_WITH(of(test.X, test.params[2].to(torch::kFloat32)), ContainsSubstring("Float"));
  CHECK_THROWS_WITH(of(test.X, test.params[0]),
                    ContainsSubstring("[50, 20, 5, 5]") && ContainsSubstring("[20, 1, 3, 3]"));
}
