// Lockstep's convolution of 3 x 3 against torch's in double.
#include <torch/autograd.h>

#include <lockstep/tests/catch.h>
#include <algorithm>
#include <array>
#include <vector>

#include <lockstep/models/layers/cpu/conv3x3/conv3x3.h>
#include <lockstep/support/cpu/capability.h>
#include <lockstep/support/tensor_data.h>
#include <lockstep/tests/models/needs_capability.h>
#include <lockstep/tests/skip.h>
#include <lockstep/tests/support/central_differences.h>
#include <lockstep/tests/support/compare.h>
#include <lockstep/tests/support/threads.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

namespace {

using ConvShape = std::array<int64_t, 5>;  // images, height, width, in, out

struct ConvCase {
  // draw(shape, scale) returns the values of a tensor as doubles.
  template <class Draw>
  ConvCase(const ConvShape& shape, const Draw& draw) {
    const auto [images, height, width, in, out] = shape;
    torch::manual_seed(images + 10 * height + 100 * width);
    const auto in_channels_last = [&](torch::IntArrayRef sizes, int64_t scale) {
      return draw(sizes, scale).contiguous(torch::MemoryFormat::ChannelsLast);
    };
    inputs = {in_channels_last({images, in, height, width}, 1), in_channels_last({out, in, 3, 3}, 4),
              draw({out}, 1)};
    gradient = in_channels_last({images, out, height, width}, 1);
  }

  std::vector<torch::Tensor> inputs;  // x, weight, bias
  torch::Tensor gradient;
};

// Returns y, then the gradients of all three inputs.
template <class Function>
std::vector<torch::Tensor> conv_and_gradients(const ConvCase& test, torch::ScalarType type,
                                              torch::ScalarType of_params, const Function& conv) {
  std::vector<torch::Tensor> inputs;
  for (const auto& input : test.inputs) {
    const auto wanted = inputs.empty() ? type : of_params;
    inputs.push_back(input.to(wanted, /*non_blocking=*/false, /*copy=*/true).requires_grad_());
  }
  std::vector<torch::Tensor> result{conv(inputs)};
  for (const auto& gradient :
       torch::autograd::grad({result[0]}, inputs, {test.gradient.to(result[0].scalar_type())})) {
    result.push_back(gradient);
  }
  return result;
}

std::vector<torch::Tensor> torch_conv(const ConvCase& test, torch::ScalarType type) {
  return conv_and_gradients(test, type, type,
                            [](const auto& in) { return torch::conv2d(in[0], in[1], in[2], 1, 1); });
}

template <class T>
std::vector<torch::Tensor> lockstep_conv(const ConvCase& test, const Conv3x3Kernels<T>& kernels) {
  return conv_and_gradients(test, kScalarType<T>, kScalarType<Computed<T>>,
                            [&](const auto& in) { return conv3x3_by(kernels, in[0], in[1], in[2]); });
}

// The values are doubles that floats can hold.
ConvCase normal_case(const ConvShape& shape) {
  return {shape, [](torch::IntArrayRef sizes, int64_t) { return torch::randn(sizes).to(torch::kFloat64); }};
}
// Whole numbers from -2 to 2, and four times that in the filters. Winograd's tiles of 2 x 2 take halves and
// quarters of the filters, so all transformed values are whole numbers below 256, which bfloat16 holds.
ConvCase whole_case(const ConvShape& shape) {
  return {shape, [](torch::IntArrayRef sizes, int64_t scale) {
            return scale * torch::randint(-2, 3, sizes, torch::kFloat64);
          }};
}

// Sizes around a tile's 4 x 4 outputs, with short tiles of each kind in one block (7 is 4 + 3, 14 is 4 + 4 +
// 3 + 3, 10 is 4 + 3 + 3) and without a whole tile (6); images around the 132 tiles that are computed at a
// time (264 in bfloat16), by two threads; more channels in than out and fewer; the four stages of ResNet-18.
const std::vector<ConvShape>& conv_shapes() {
  static const std::vector<ConvShape> shapes{{1, 1, 1, 64, 64},     {3, 4, 4, 64, 64},   {5, 5, 3, 128, 64},
                                             {2, 8, 9, 64, 192},    {13, 7, 7, 64, 128}, {265, 3, 2, 64, 64},
                                             {12, 10, 14, 64, 64},  {75, 7, 6, 64, 64},  {1, 28, 28, 64, 64},
                                             {2, 14, 14, 128, 128}, {3, 4, 4, 512, 512}};
  return shapes;
}

// The error is at most `times` times that of torch.
void check_conv(CpuCapability capability, double times) {
  NEEDS_CAPABILITY(capability);
  for (const auto& shape : conv_shapes()) {
    const auto test = normal_case(shape);
    const auto exact = torch_conv(test, torch::kFloat64), by_torch = torch_conv(test, torch::kFloat32);
    const auto found = lockstep_conv(test, *cpu_kernels_of(capability).conv3x3);
    for (size_t i = 0; i < exact.size(); ++i) {
      INFO(test.inputs[0].sizes() << " " << test.inputs[1].sizes() << ", " << (i == 0 ? "y" : "gradient ")
                                  << i << ", torch's own error " << relative_error(by_torch[i], exact[i]));
      CHECK(relative_error(found[i], exact[i]) <=
            std::max(1e-6, times * relative_error(by_torch[i], exact[i])));
    }
  }
}

// Numbers that need no rounding give the exact result, though bfloat16 does not hold all sums.
void check_bf16_conv(const Conv3x3Kernels<Bf16>& kernels) {
  for (const auto& shape : conv_shapes()) {
    const auto test = whole_case(shape);
    INFO(test.inputs[0].sizes() << " " << test.inputs[1].sizes());
    const auto exact = torch_conv(test, torch::kFloat64);
    const auto found = lockstep_conv(test, kernels);
    for (size_t i = 0; i < exact.size(); ++i) CHECK(found[i].equal(exact[i].to(found[i].scalar_type())));
    CHECK(found[0].scalar_type() == torch::kFloat32);
    CHECK(found[1].scalar_type() == torch::kBFloat16);
    if (shape[3] == 512) CHECK_FALSE(exact[0].equal(exact[0].to(torch::kBFloat16).to(torch::kFloat64)));
  }
  // Other numbers are rounded to 8 binary digits, by 1/512 at most, after they are transformed; transforming
  // back carries that on.
  for (const auto& shape : conv_shapes()) {
    auto test = normal_case(shape);
    test.inputs[0] = test.inputs[0].to(torch::kBFloat16).to(torch::kFloat64);
    const auto exact = torch_conv(test, torch::kFloat64);
    const auto found = lockstep_conv(test, kernels);
    for (size_t i = 0; i < 3; ++i) {
      CHECK((found[i].to(torch::kFloat64) - exact[i]).norm().item<double>() <
            .01 * exact[i].norm().item<double>());
    }
  }
}

}  // namespace

TEST_CASE("lockstep's convolution in double is torch's, forward and backward") {
  for (const auto& shape : conv_shapes()) {
    const auto test = normal_case(shape);
    INFO(test.inputs[0].sizes() << " " << test.inputs[1].sizes());
    const auto exact = torch_conv(test, torch::kFloat64);
    const auto found = lockstep_conv(test, *cpu_kernels<double>().conv3x3);
    for (size_t i = 0; i < exact.size(); ++i) CHECK(relative_error(found[i], exact[i]) < 1e-13);
    CHECK(found[0].is_contiguous(torch::MemoryFormat::ChannelsLast));
  }
}

TEST_CASE("lockstep's convolution's gradients in double are its central differences") {
  const auto test = normal_case({3, 5, 7, 64, 64});
  const auto conv = [](const auto& in) {
    return conv3x3_by(*cpu_kernels<double>().conv3x3, in[0], in[1], in[2]);
  };
  CHECK(worst_derivative(conv, test.inputs, test.gradient, 1e-3) <
        1e-10);  // linear in each input: any step is exact
}

// Without FMA each multiplication is rounded, too. So it is under AddressSanitizer, where the compiler keeps
// multiplications and additions apart.
constexpr double kRoundedProducts = 8;
#ifdef __SANITIZE_ADDRESS__
constexpr double kFusedProducts = kRoundedProducts;
#else
constexpr double kFusedProducts = 5;
#endif

TEST_CASE("lockstep's convolution in float: AVX-512") { check_conv(CpuCapability::kAvx512, kFusedProducts); }
TEST_CASE("lockstep's convolution in float: AVX2") { check_conv(CpuCapability::kAvx2, kFusedProducts); }
TEST_CASE("lockstep's convolution in float: any CPU") {
  check_conv(CpuCapability::kPortable, kRoundedProducts);
}

TEST_CASE("lockstep's convolution in bfloat16: AVX512_BF16") {
  const auto* kernels = fast_bf16_kernels();
  if (!kernels) SKIP_CASE("this CPU has no AVX512_BF16, or has AMX too");
  check_bf16_conv(*kernels->conv3x3);
}
TEST_CASE("lockstep's convolution in bfloat16: any CPU") {
  check_bf16_conv(*lanes_portable::bf16_kernels().conv3x3);
}

TEST_CASE("threads share lockstep's convolution, and the same number of threads gives the same bits") {
  // Fewer tiles than threads; more filters than can be shared evenly; one panel of filters.
  for (const auto& shape : {ConvShape{1, 4, 4, 64, 192}, {7, 5, 5, 64, 128}, {2, 9, 9, 128, 64}}) {
    const auto test = normal_case(shape);
    const auto exact = torch_conv(test, torch::kFloat64);
    for (const int threads : {1, 2, 3, 4, 6}) {
      const Threads guard(threads);
      INFO(test.inputs[1].sizes() << ", " << threads << " threads");
      const auto in_double = lockstep_conv(test, *cpu_kernels<double>().conv3x3);
      const auto first = lockstep_conv(test, *cpu_kernels<float>().conv3x3);
      const auto second = lockstep_conv(test, *cpu_kernels<float>().conv3x3);
      const auto whole = whole_case(shape);
      const auto exact_whole = torch_conv(whole, torch::kFloat64);
      const auto in_bf16 = lockstep_conv(whole, *lanes_portable::bf16_kernels().conv3x3);
      for (size_t i = 0; i < exact.size(); ++i) {
        CHECK(in_bf16[i].equal(exact_whole[i].to(in_bf16[i].scalar_type())));
        CHECK(relative_error(in_double[i], exact[i]) < 1e-13);
        CHECK(first[i].equal(second[i]));
      }
    }
  }
}

TEST_CASE("lockstep's convolution computes the gradients that are needed, and no gradient of a gradient") {
  const auto test = normal_case({2, 5, 5, 64, 64});
  const auto exact = torch_conv(test, torch::kFloat64);
  for (size_t wanted = 0; wanted < 3; ++wanted) {
    auto inputs = test.inputs;
    inputs[wanted] = inputs[wanted].clone().requires_grad_();
    const auto y = conv3x3_by(*cpu_kernels<double>().conv3x3, inputs[0], inputs[1], inputs[2]);
    const auto once = torch::autograd::grad({y}, {inputs[wanted]}, {test.gradient}, /*retain_graph=*/true);
    const auto again = torch::autograd::grad({y}, {inputs[wanted]}, {test.gradient}, /*retain_graph=*/true);
    CHECK(relative_error(once[0], exact[wanted + 1]) < 1e-13);
    CHECK(again[0].equal(once[0]));
    CHECK_THROWS_WITH(
        torch::autograd::grad({y}, {inputs[wanted]}, {test.gradient}, true, /*create_graph=*/true),
        ContainsSubstring("create_graph") && ContainsSubstring("Kernels::kTorch"));
  }
}

TEST_CASE("lockstep's convolution takes other memory formats, no bias, and inputs that need no gradient") {
  const auto& kernels = *cpu_kernels<double>().conv3x3;
  const auto test = normal_case({2, 6, 5, 64, 64});
  const auto x = test.inputs[0].contiguous(), weight = test.inputs[1].contiguous();
  const auto expected = torch::conv2d(x, weight, {}, 1, 1);
  CHECK(relative_error(conv3x3_by(kernels, x, weight, {}), expected) < 1e-13);
  const auto trained = weight.clone().requires_grad_();
  const auto y = conv3x3_by(kernels, x, trained, {});
  const auto of_weight = torch::autograd::grad({y}, {trained}, {test.gradient.contiguous()});
  const auto by_torch =
      torch::autograd::grad({torch::conv2d(x, trained, {}, 1, 1)}, {trained}, {test.gradient});
  CHECK(relative_error(of_weight[0], by_torch[0]) < 1e-13);
}

TEST_CASE("what lockstep's convolution returns may be changed in place") {
  const auto test = normal_case({2, 4, 4, 64, 64});
  const auto x = test.inputs[0].clone().requires_grad_();
  auto y = conv3x3_by(*cpu_kernels<double>().conv3x3, x, test.inputs[1], {});
  const auto found = torch::autograd::grad({torch::relu_(y)}, {x}, {test.gradient});
  const auto expected = torch::relu(torch::conv2d(x, test.inputs[1], {}, 1, 1));
  const auto by_torch = torch::autograd::grad({expected}, {x}, {test.gradient});
  CHECK(relative_error(found[0], by_torch[0]) < 1e-13);
}

TEST_CASE("lockstep's convolution is for floats and fast bfloat16, 3 x 3 and multiples of 64 channels") {
  const auto x = torch::rand({2, 64, 5, 5}), weight = torch::rand({128, 64, 3, 3});
  CHECK(conv3x3_takes(x, torch::kFloat32, weight));
  CHECK_FALSE(conv3x3_takes(x, torch::kFloat64, weight.to(torch::kFloat64)));
  CHECK_FALSE(conv3x3_takes(x, torch::kFloat32, weight.to(torch::kBFloat16)));
  CHECK(conv3x3_takes(x, torch::kBFloat16, weight) == (fast_bf16_kernels() != nullptr));
  CHECK_FALSE(conv3x3_takes(x, torch::kFloat32, torch::rand({128, 64, 1, 1})));
  CHECK_FALSE(conv3x3_takes(x, torch::kFloat32, torch::rand({96, 64, 3, 3})));
  CHECK_FALSE(conv3x3_takes(torch::rand({2, 1, 5, 5}), torch::kFloat32, torch::rand({64, 1, 3, 3})));
  CHECK_FALSE(conv3x3_takes(torch::rand({0, 64, 5, 5}), torch::kFloat32, weight));
  CHECK_FALSE(conv3x3_takes(x, torch::kFloat32, torch::rand({0, 64, 3, 3})));
  const auto& kernels = *cpu_kernels<float>().conv3x3;
  const auto doubles = x.to(torch::kFloat64);
  CHECK_THROWS_WITH(conv3x3_by(kernels, doubles, weight, {}),
                    ContainsSubstring("Float") && ContainsSubstring("Double"));
  CHECK_THROWS_WITH(conv3x3_by(kernels, x, weight.to(torch::kFloat64), {}), ContainsSubstring("Double"));
  CHECK_THROWS_WITH(conv3x3(doubles, weight, {}), ContainsSubstring("Double"));
  CHECK_THROWS_WITH(conv3x3(x, torch::rand({64, 128, 3, 3}), {}), ContainsSubstring("[64, 128, 3, 3]"));
  CHECK_THROWS_WITH(conv3x3(torch::rand({0, 64, 5, 5}), weight, {}), ContainsSubstring("[0, 64, 5, 5]"));
  CHECK_THROWS_WITH(conv3x3(x, weight, torch::rand({64})),
                    ContainsSubstring("[128]") && ContainsSubstring("[64]"));
}
