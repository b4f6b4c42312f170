// Losses and counts of rows with classes.
#include <torch/nn/functional/loss.h>

#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/support/classification.h>
#include <lockstep/support/error.h>

using namespace lockstep;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kRows = 7, kClasses = 10;

torch::Tensor logits() { return torch::arange(kRows * kClasses).mul(.7).sin().view({kRows, kClasses}); }

torch::Tensor labels() { return torch::arange(kRows).mul(3).remainder(kClasses); }

}  // namespace

TEST_CASE("labels of every integer type have torch's loss of int64 labels") {
  namespace F = torch::nn::functional;
  const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
  const auto expected = F::cross_entropy(logits(), labels(), sum);
  const auto right = (logits().argmax(1) == labels()).sum();
  for (const auto type : {torch::kUInt8, torch::kInt8, torch::kInt16, torch::kInt32, torch::kInt64,
                          torch::kUInt16, torch::kUInt32}) {
    INFO(toString(type));
    const auto outcome = classification_outcome(logits(), labels().to(type));
    CHECK(outcome.loss.equal(expected));
    CHECK(outcome.top1.equal(right));
  }
}

TEST_CASE("labels that are not classes of the logits are refused, with both values") {
  struct Refused {
    std::string what, hint;
  };
  const auto refusal = [](const torch::Tensor& given, const torch::Tensor& y) {
    try {
      classification_outcome(given, y);
    } catch (const DataError& error) {
      return Refused{error.message(), error.hint()};
    }
    return Refused{"nothing", ""};
  };
  const auto with = [](int64_t row, int64_t label) {
    auto y = labels();
    y[row] = label;
    return y;
  };
  CHECK(refusal(logits(), labels()).what == "nothing");
  CHECK(refusal(logits(), with(4, kClasses)).what ==
        "row 4 of 7 has label 10, but the logits have 10 classes");
  CHECK(refusal(logits(), with(0, -1)).what == "row 0 of 7 has label -1, but the logits have 10 classes");
  CHECK(refusal(logits(), with(6, 200).to(torch::kUInt8)).what ==
        "row 6 of 7 has label 200, but the logits have 10 classes");
  const auto ignored = refusal(logits(), with(2, -100));
  CHECK(ignored.what == "row 2 of 7 has label -100, but the logits have 10 classes");
  CHECK_THAT(ignored.hint, ContainsSubstring("ignore_index"));
  CHECK_THAT(refusal(logits(), torch::full({kRows}, -100)).hint, ContainsSubstring("ignore_index"));
  CHECK(refusal(logits(), labels().to(torch::kFloat32)).what == "the labels are Float, classes are integers");
  CHECK(refusal(logits(), labels() > 4).what == "the labels are Bool, classes are integers");
  CHECK(refusal(logits(), labels().slice(0, 1)).what == "labels of shape [6] for logits of shape [7, 10]");
  CHECK(refusal(logits(), labels().unsqueeze(1)).what ==
        "labels of shape [7, 1] for logits of shape [7, 10]");
  CHECK(refusal(logits()[0], labels()).what == "labels of shape [7] for logits of shape [10]");
}
