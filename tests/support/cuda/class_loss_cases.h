// The loss of classes by lockstep's kernels against torch in double, on the CPU (emulated) or a GPU.
#pragma once

#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/functional/loss.h>

#include <lockstep/tests/catch.h>

#include <cmath>
#include <limits>
#include <vector>

#include <lockstep/support/class_loss.h>
#include <lockstep/support/cuda/class_loss_kernels.h>
#include <lockstep/support/losses.h>
#include <lockstep/tests/support/compare.h>

namespace lockstep::testing {

constexpr auto kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr auto kInf = std::numeric_limits<float>::infinity();

// Values of both signs, most of which differ, around `centre`.
inline torch::Tensor some_logits(int64_t rows, int64_t classes, double centre, torch::ScalarType type) {
  const auto waves = torch::arange(rows * classes, torch::kFloat64).mul(.7).sin().mul(6).add(centre);
  return waves.view({rows, classes}).to(type);
}

inline torch::Tensor some_labels(int64_t rows, int64_t classes) {
  return torch::arange(rows).mul(7).add(3).remainder(classes);
}

struct LossResults {
  torch::Tensor loss, dlogits;
  int64_t top1 = 0, top5 = 0;
};

// The gradient is that of .25 times the loss.
inline LossResults loss_results(const torch::Tensor& logits, const torch::Tensor& labels) {
  const auto leaf = logits.detach().requires_grad_();
  REQUIRE(class_loss_available(leaf, labels));
  const auto outcome = classification_outcome(leaf, labels);
  (outcome.loss * .25).backward();
  CHECK_FALSE(outcome.metrics[0].sum.requires_grad());
  return {outcome.loss.detach().cpu(), leaf.grad().cpu(), outcome.metrics[0].sum.item<int64_t>(),
          outcome.metrics[1].sum.item<int64_t>()};
}

// Torch's, of the same numbers in double on the CPU.
inline LossResults expected_results(const torch::Tensor& logits, const torch::Tensor& labels) {
  namespace F = torch::nn::functional;
  const auto x = logits.detach().cpu().to(torch::kFloat64).requires_grad_();
  const auto y = labels.cpu();
  const auto loss = F::cross_entropy(x, y, F::CrossEntropyFuncOptions().reduction(torch::kSum));
  (loss * .25).backward();
  const auto own = x.detach().gather(1, y.unsqueeze(1));
  return {loss.detach(), x.grad(), (x.argmax(1) == y).sum().item<int64_t>(),
          ((x > own).sum(1) < 5).sum().item<int64_t>()};
}

inline void check_class_loss(torch::Device device, int64_t rows, int64_t classes, double centre,
                             torch::ScalarType type) {
  INFO(rows << " rows of " << classes << " classes around " << centre << ", " << torch::toString(type));
  const auto logits = some_logits(rows, classes, centre, type).to(device);
  const auto labels = some_labels(rows, classes).to(device);
  const auto found = loss_results(logits, labels);
  const auto expected = expected_results(logits, labels);
  CHECK(found.loss.scalar_type() == torch::kFloat32);
  CHECK(found.dlogits.scalar_type() == type);
  CHECK(found.top1 == expected.top1);
  CHECK(found.top5 == expected.top5);
  CHECK(std::abs(found.loss.item<double>() - expected.loss.item<double>()) <=
        1e-6 * expected.loss.item<double>());
  // The gradients are at most .25: rounding of float, and of bfloat16 where they are stored as that.
  const double tolerance = type == torch::kFloat32 ? 2e-7 : 1e-3;
  if (rows > 0) CHECK(max_difference(found.dlogits, expected.dlogits) <= tolerance);
}

// From one thread a row to a warp a row; one block, with one line of rows or more; several blocks.
inline void check_class_losses(torch::Device device) {
  struct Shape {
    int64_t rows, classes;
  };
  for (const auto& [rows, classes] : std::vector<Shape>{
           {1, 1}, {7, 2}, {256, 10}, {96, 10}, {1025, 10}, {2300, 5}, {5, 17}, {70, 257}, {33, 1000}}) {
    check_class_loss(device, rows, classes, 0, torch::kFloat32);
    check_class_loss(device, rows, classes, 0, torch::kBFloat16);
  }
  check_class_loss(device, 64, 10, 100, torch::kFloat32);
  check_class_loss(device, 64, 10, -1e4, torch::kFloat32);
}

// Equal logits, and numbers that are not finite, are counted as torch counts them.
inline void check_hard_rows(torch::Device device) {
  const std::vector<std::vector<float>> rows = {{1, 1, 1, 1, 1, 1, 1},     {1, 2, 2, 0, 0, 0, 0},
                                                {6, 5, 4, 3, 2, 1, 0},     {1, 1, 1, 1, 1, 0, 1},
                                                {kNaN, 1, 2, 3, 4, 5, 6},  {1, kNaN, kNaN, 3, 4, 5, 6},
                                                {kInf, 1, 2, 3, 4, 5, 6},  {kInf, kInf, 0, 0, 0, 0, 0},
                                                {-kInf, 0, 1, 2, 3, 4, 5}, std::vector<float>(7, -kInf)};
  for (size_t r = 0; r < rows.size(); ++r) {
    for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
      for (int64_t label = 0; label < 7; ++label) {
        INFO("row " << r << ", label " << label);
        const auto logits = torch::tensor(rows[r]).view({1, 7}).to(type).to(device);
        const auto labels = torch::full({1}, label, torch::kInt64).to(device);
        const auto found = loss_results(logits, labels);
        const auto expected = expected_results(logits, labels);
        CHECK(found.top1 == expected.top1);
        CHECK(found.top5 == expected.top5);
        const auto loss = found.loss.item<double>(), wanted = expected.loss.item<double>();
        CHECK(std::isnan(loss) == std::isnan(wanted));
        CHECK(std::isinf(loss) == std::isinf(wanted));
        CHECK(found.dlogits.isnan().equal(expected.dlogits.isnan()));
      }
    }
  }
}

// Logits with gaps, labels of other types; one metric for fewer than five classes; no rows.
inline void check_class_loss_inputs(torch::Device device) {
  const auto wide = some_logits(20, 24, 0, torch::kFloat32).to(device);
  const auto turned = wide.t().contiguous().t();
  const auto columns = wide.slice(1, 0, 20, 2);
  const auto labels = some_labels(20, 10).to(device);
  CHECK(loss_results(columns, labels).loss.equal(loss_results(columns.contiguous(), labels).loss));
  CHECK(loss_results(columns, labels).dlogits.equal(loss_results(columns.contiguous(), labels).dlogits));
  CHECK(loss_results(turned, labels).loss.equal(loss_results(wide, labels).loss));
  CHECK(loss_results(turned, labels).dlogits.equal(loss_results(wide, labels).dlogits));
  const auto spaced = torch::stack({labels, labels}, 1).select(1, 0);
  CHECK(loss_results(columns, spaced).loss.equal(loss_results(columns, labels).loss));
  const auto bytes = classification_outcome(columns, labels.to(torch::kUInt8));
  CHECK(bytes.loss.cpu().equal(loss_results(columns, labels).loss));

  const auto few = classification(3).loss_sum(wide.slice(1, 0, 3), labels.remainder(3));
  CHECK(few.metrics.size() == 1);
  CHECK(few.metrics[0].sum.item<int64_t>() ==
        (wide.slice(1, 0, 3).argmax(1) == labels.remainder(3)).sum().item<int64_t>());

  const auto none = classification_outcome(wide.slice(0, 0, 0), labels.slice(0, 0, 0));
  CHECK(none.loss.item<float>() == 0);
  CHECK(none.metrics[0].sum.item<int64_t>() == 0);
  CHECK(none.metrics[1].sum.item<int64_t>() == 0);
}

// The gradient of a sum of squares of the first gradient, which needs a second backward pass.
inline void check_second_gradient(torch::Device device) {
  const auto second = [&](torch::Device there, torch::ScalarType type) {
    const auto x = some_logits(6, 10, 0, torch::kFloat64).to(type).to(there).requires_grad_();
    const auto loss = classification_outcome(x, some_labels(6, 10).to(there)).loss;
    const auto first = torch::autograd::grad({loss}, {x}, {}, std::nullopt, /*create_graph=*/true);
    return torch::autograd::grad({first[0].square().sum()}, {x})[0].cpu();
  };
  const auto expected = second(torch::kCPU, torch::kFloat64);
  CHECK(max_difference(second(device, torch::kFloat32), expected) <= 1e-6);
}

}  // namespace lockstep::testing
