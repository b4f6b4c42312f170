// Losses and counts of rows with classes.
#include <torch/nn/functional/loss.h>

#include <lockstep/tests/catch.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/support/error.h>
#include <lockstep/support/losses.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
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
    CHECK(outcome.metrics[0].sum.equal(right));
  }
}

TEST_CASE("labels that are not classes of the logits are refused, with both values") {
  struct Refused {
    std::string what, hint;
  };
  const auto refusal = [](const torch::Tensor& given, const torch::Tensor& y, bool few = false) {
    try {
      few ? classification(2).loss_sum(given, y) : classification_outcome(given, y);
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
  CHECK(refusal(logits().slice(1, 0, 2), torch::tensor({0, 1, -100, 0, 1, 0, 1}), /*few=*/true).what ==
        "row 2 of 7 has label -100, but the logits have 2 classes");
  CHECK_THAT(refusal(logits(), torch::full({kRows}, -100)).hint, ContainsSubstring("ignore_index"));
  CHECK(refusal(logits(), labels().to(torch::kFloat32)).what == "the labels are Float, classes are integers");
  CHECK(refusal(logits(), labels() > 4).what == "the labels are Bool, classes are integers");
  CHECK(refusal(logits(), labels().slice(0, 1)).what == "labels of shape [6] for logits of shape [7, 10]");
  CHECK(refusal(logits(), labels().unsqueeze(1)).what ==
        "labels of shape [7, 1] for logits of shape [7, 10]");
  CHECK(refusal(logits()[0], labels()).what == "labels of shape [7] for logits of shape [10]");
  CHECK(refusal(logits().view({kRows, 5, 2}), labels().remainder(5).unsqueeze(1).expand({kRows, 2})).what ==
        "labels of shape [7, 2] for logits of shape [7, 5, 2]");  // of which torch has a loss
}

// The numbers are of Python's torch.nn.functional in double, with
//   i = torch.arange(12); out = (i*.7).sin().view(4, 3); tgt = (i*.3).cos().view(4, 3)
//   F.mse_loss(out, tgt), F.l1_loss(out, tgt), F.smooth_l1_loss(out, tgt, beta=.5), and .grad[1, 2] of each
TEST_CASE(
    "mse and smooth L1 are torch's means over all numbers, as sums over the rows, with their gradients") {
  const auto i = torch::arange(12, torch::kFloat64);
  const auto out = i.mul(.7).sin().view({4, 3}), target = i.mul(.3).cos().view({4, 3});
  const struct {
    OutputLoss loss;
    double mean, gradient;
    std::vector<std::string> metrics;
  } cases[] = {{mse(), 0.7897979103212561, -0.07025340489288712, {"mae", "rmse"}},
               {smooth_l1(.5), 0.46137400234062437, -0.07025340489288712, {"mae"}}};
  for (const auto& [loss, mean, gradient, metrics] : cases) {
    const auto leaf = out.clone().requires_grad_();
    const auto outcome = loss.loss_sum(leaf, target);
    CHECK((outcome.loss / 4).item<double>() == Approx(mean).epsilon(1e-12));
    (outcome.loss / 4).backward();
    CHECK(leaf.grad()[1][2].item<double>() == Approx(gradient).epsilon(1e-12));
    REQUIRE(outcome.metrics.size() == metrics.size());
    for (size_t m = 0; m < metrics.size(); ++m) CHECK(loss.metrics[m].name == metrics[m]);
    CHECK(outcome.metrics[0].sum.item<double>() / 4 == Approx(0.661111896170284).epsilon(1e-12));
    CHECK_FALSE(outcome.metrics[0].sum.requires_grad());
    const auto none = loss.loss_sum(out.slice(0, 0, 0), target.slice(0, 0, 0));
    CHECK(none.loss.item<double>() == 0);
    CHECK(refusal_of<DataError>([&, &own = loss] {
            own.loss_sum(out.slice(1, 0, 1), target.select(1, 0));
          }) == "targets of shape [4] for outputs of shape [4, 1]");
  }
  CHECK(mse().metrics[1].finish(9) == 3);
  CHECK(refusal_of([] { smooth_l1(0); }) == "a smooth L1 loss with beta 0");
}

// With logits = (torch.arange(30)*.7).sin().view(2, 3, 5); t = torch.tensor([[1, 4, 0], [2, -100, -100]])
//   F.cross_entropy(logits.flatten(0, 1), t.flatten()), and .grad[1, 0, 2]
TEST_CASE("cross-entropy over tokens is torch's mean over those that count, with its gradient") {
  const auto loss = token_cross_entropy();
  const auto logits = torch::arange(30, torch::kFloat64).mul(.7).sin().view({2, 3, 5}).requires_grad_();
  const auto tokens = torch::tensor({1, 4, 0, 2, -100, -100}, torch::kInt64).view({2, 3});
  const auto weight = loss.weight(tokens);
  CHECK(weight.item<int64_t>() == 4);
  const auto outcome = loss.loss_sum(logits, tokens);
  const auto mean = outcome.loss / weight;
  CHECK(mean.item<double>() == Approx(1.5782788353420376).epsilon(1e-12));
  mean.backward();
  CHECK(logits.grad()[1][0][2].item<double>() == Approx(-0.21878972495885915).epsilon(1e-12));
  const auto& perplexity = outcome.metrics[0];
  CHECK(loss.metrics[0].finish(perplexity.sum.item<double>() / perplexity.weight.item<double>()) ==
        Approx(4.846606819934635).epsilon(1e-12));
  CHECK(outcome.metrics[1].sum.item<int64_t>() == 1);
  CHECK(outcome.metrics[1].weight.item<int64_t>() == 4);
  CHECK(refusal_of<DataError>([&] { loss.loss_sum(logits, tokens.flatten()); }) ==
        "targets of shape [6] for logits of shape [2, 3, 5]");
}

TEST_CASE("a classification counts top5 from five classes on, or if nothing says how many there are") {
  const auto names = [](const OutputLoss& loss) {
    std::vector<std::string> all;
    for (const auto& kind : loss.metrics) {
      CHECK(kind.type == MetricType::kCount);
      all.push_back(kind.name);
    }
    const auto outcome = loss.loss_sum(logits(), labels());
    CHECK(outcome.metrics.size() == all.size());
    return all;
  };
  CHECK(names(classification()) == std::vector<std::string>{"top1", "top5"});
  CHECK(names(classification(5)) == std::vector<std::string>{"top1", "top5"});
  CHECK(names(classification(4)) == std::vector<std::string>{"top1"});
}

TEST_CASE("label smoothing and class weights are torch's, also where a batch is cut into parts") {
  namespace F = torch::nn::functional;
  const std::vector<double> weights{.25, .5, .75, 1, 1.25, 1.5, 1.75, 2, 2.25, 2.5};
  const auto weight = torch::tensor(weights, torch::dtype(torch::kFloat64));
  // The double logits of torch.nn.CrossEntropyLoss in Python, whose means follow.
  const auto x = torch::arange(kRows * kClasses, torch::kFloat64).mul(.7).sin().view({kRows, kClasses});
  const auto y = labels();
  const std::map<std::pair<double, bool>, double> of_python{
      {{.1, false}, 2.5638068478291203}, {{0., true}, 2.4888042701547635}, {{.1, true}, 2.4807959041493906}};
  for (const double smoothing : {0., .1}) {
    for (const bool weighted : {false, true}) {
      INFO(smoothing << (weighted ? ", weighted" : ""));
      auto options = F::CrossEntropyFuncOptions().reduction(torch::kMean).label_smoothing(smoothing);
      if (weighted) options.weight(weight);
      const auto expected = F::cross_entropy(x, y, options).item<double>();
      const auto loss =
          classification(ClassificationOptions{.classes = kClasses,
                                               .label_smoothing = smoothing,
                                               .class_weights = weighted ? weights : std::vector<double>{}});
      CHECK(static_cast<bool>(loss.weight) == weighted);
      double sum = 0, divisor = 0;
      for (const auto& [begin, count] : {std::pair(0, 3), std::pair(3, 1), std::pair(4, 3)}) {
        const auto part = y.narrow(0, begin, count);
        sum += loss.loss_sum(x.narrow(0, begin, count), part).loss.item<double>();
        divisor += weighted ? loss.weight(part).item<double>() : count;
      }
      CHECK(sum / divisor == Approx(expected).epsilon(1e-12));
      const auto python = of_python.find({smoothing, weighted});
      if (python != of_python.end()) CHECK(sum / divisor == Approx(python->second).epsilon(1e-12));
    }
  }
}

TEST_CASE("class weights and label smoothing out of range are refused, with the value") {
  const auto refused = [](const ClassificationOptions& options) {
    return refusal_and_hint([&] { classification(options); });
  };
  CHECK_THAT(refused({.label_smoothing = 1}), ContainsSubstring("a label smoothing of 1 |"));
  CHECK_THAT(refused({.label_smoothing = -.1}), ContainsSubstring("-0.1"));
  CHECK_THAT(refused({.class_weights = {1, -2}}), ContainsSubstring("[1, -2]"));
  CHECK_THAT(refused({.class_weights = {0, 0}}), ContainsSubstring("not all 0"));
  CHECK_THAT(refused({.classes = 3, .class_weights = {1, 2}}),
             ContainsSubstring("2 class weights for 3 classes"));
  const auto two = classification(ClassificationOptions{.class_weights = {1, 2}});
  CHECK_THAT(refusal_of<DataError>([&] { two.loss_sum(logits(), labels()); }),
             ContainsSubstring("2 class weights for logits of 10 classes"));
  CHECK_THAT(refusal_of<DataError>([&] { two.weight(labels()); }), ContainsSubstring("2 class weights"));
}
