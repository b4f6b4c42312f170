// Which kernels compute LeNet, in which arithmetic and on how many threads. The values of lockstep's kernels
// are tested in lenet_features_test.cpp and lenet_head_test.cpp.
#include <lockstep/tests/catch.h>
#include <vector>

#include <lockstep/models/layers/cpu/kernels.h>
#include <lockstep/models/layers/cpu/lenet/features.h>
#include <lockstep/models/layers/cpu/lenet/head.h>
#include <lockstep/parallel/training/precision.h>
#include <lockstep/tests/models/lenet_cases.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

// One output near 0 that rounding moves to the other side of a ReLU changes a gradient by more than rounding.
constexpr double kLeNetRounding = 1e-2;

torch::Tensor logits_by(const LeNetLayers<float>& layers, const LeNetCase& test) {
  const auto p = leaves_of(test, torch::kFloat32, {});
  const auto h = lenet_features<float>(test.X.to(torch::kFloat32), p[0], p[1], p[2], p[3], layers);
  return lenet_head<float>(h, p[4], p[5], p[6], p[7], layers);
}

}  // namespace

TEST_CASE("the three kinds of kernels of LeNet agree") {
  const LeNetCase test(37);
  const auto exact = lenet_step(Kernels::kTorch, test, torch::kFloat64);
  const auto by_winograd = lenet_step(Kernels::kAuto, test, torch::kFloat32);
  const auto by_direct = lenet_step(Kernels::kDirect, test, torch::kFloat32);
  const auto by_torch = lenet_step(Kernels::kTorch, test, torch::kFloat32);
  for (const auto* found : {&by_winograd, &by_direct, &by_torch})
    CHECK(worst_error(*found, exact) < kLeNetRounding);
  for (size_t i = 0; i < exact.size(); ++i) {
    if (i == 4 || i == 6 || i == 8) continue;  // b2, b3, b4: only ReLUs precede their gradients
    INFO(i);
    CHECK_FALSE(by_winograd[i].equal(by_direct[i]));
    CHECK_FALSE(by_winograd[i].equal(by_torch[i]));
    CHECK_FALSE(by_direct[i].equal(by_torch[i]));
  }
  CHECK(lenet(test.X.to(torch::kFloat32), leaves_of(test, torch::kFloat32, {})).equal(by_winograd[0]));
  const auto& kernels = cpu_kernels<float>();
  CHECK(logits_by(*kernels.winograd_lenet, test).equal(by_winograd[0]));
  CHECK(logits_by(*kernels.direct_lenet, test).equal(by_direct[0]));
}

TEST_CASE("torch computes doubles, and images that need a gradient, with any kernels") {
  const LeNetCase test(5);
  const auto by_torch = lenet_step(Kernels::kTorch, test, torch::kFloat64);
  CHECK(equal_tensors(lenet_step(Kernels::kAuto, test, torch::kFloat64), by_torch));
  CHECK(equal_tensors(lenet_step(Kernels::kDirect, test, torch::kFloat64), by_torch));

  const auto params = leaves_of(test, torch::kFloat32, kAllOfLeNet);
  const auto with_images = [&](Kernels kernels) {
    const auto X = test.X.to(torch::kFloat32).requires_grad_();
    const auto logits = lenet_by(kernels, X, params);
    return Tensors{logits, torch::autograd::grad({logits}, {X}, {test.gradient.to(torch::kFloat32)})[0]};
  };
  CHECK(equal_tensors(with_images(Kernels::kAuto), with_images(Kernels::kTorch)));
}

TEST_CASE("under autocast lockstep's kernels compute in fp32, and torch's in bfloat16") {
  const LeNetCase test(18);
  const auto under_autocast = [&](Kernels kernels) {
    const AutocastGuard autocast(Precision::kBf16, torch::kCPU);
    return lenet_step(kernels, test, torch::kFloat32);
  };
  for (const auto kernels : {Kernels::kAuto, Kernels::kDirect}) {
    const auto found = under_autocast(kernels);
    CHECK(found[0].scalar_type() == torch::kFloat32);
    CHECK(equal_tensors(found, lenet_step(kernels, test, torch::kFloat32)));
  }
  const auto coarse = under_autocast(Kernels::kTorch);
  CHECK(worst_error(coarse, lenet_step(Kernels::kTorch, test, torch::kFloat64)) > 1e-3);
}

TEST_CASE("LeNet on one, two and three threads: the same numbers, and each time the same bits") {
  // Fewer groups of images than threads; as many with one that is not full; more than backward takes at once.
  for (const int64_t rows : {1, 5, 33, 257}) {
    const LeNetCase test(rows);
    for (const auto kernels : {Kernels::kAuto, Kernels::kDirect}) {
      std::vector<Tensors> all;
      for (const int threads : {1, 2, 3}) {
        INFO(rows << " rows, " << threads << " threads");
        const Threads guard(threads);
        all.push_back(lenet_step(kernels, test, torch::kFloat32));
        CHECK(equal_tensors(lenet_step(kernels, test, torch::kFloat32), all.back()));
        CHECK(all.back()[0].equal(all[0][0]));  // each row's logits depend on that row only
        CHECK(worst_error(all.back(), all[0]) < 1e-5);
      }
      // The threads shared the rows: sums are in another order.
      if (rows == 257) CHECK_FALSE(equal_tensors(all[0], all[1]));
      if (rows == 257) CHECK_FALSE(equal_tensors(all[1], all[2]));
    }
  }
}
