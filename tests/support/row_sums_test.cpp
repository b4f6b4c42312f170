// Sums over rows, and the means of their metrics.
#include <lockstep/tests/catch.h>

#include <cmath>

#include <lockstep/support/error.h>
#include <lockstep/support/row_sums.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;

namespace {

const std::vector<MetricKind> kMetrics = {
    {.name = "right", .type = MetricType::kCount},
    {.name = "rmse", .finish = [](double mean) { return std::sqrt(mean); }},
    {.name = "per token", .own_weight = true}};

RowSums some_sums() {
  auto sums = zero_sums(kMetrics);
  sums.loss = 30;
  sums.rows = 10;
  sums.weight = 20;
  sums.metrics[0].sum = 4;
  sums.metrics[1].sum = 90;
  sums.metrics[2].sum = 7;
  sums.metrics[2].weight = 28;
  return sums;
}

}  // namespace

TEST_CASE("a metric is its sum by the rows or its own weight, and finished where it says how") {
  const auto sums = some_sums();
  CHECK(sums.mean_loss() == 1.5);
  CHECK(sums["right"] == .4);
  CHECK(sums["rmse"] == 3);
  CHECK(sums["per token"] == .25);
  CHECK(refusal_and_hint([&] { sums["top1"]; }) ==
        "the model has no metric named top1 | it declares right, rmse, per token");
  CHECK(refusal_and_hint([] { RowSums()["top1"]; }) ==
        "the model has no metric named top1 | it declares none");
}

TEST_CASE("sums are added metric by metric, and none take those of the other") {
  RowSums twice;
  twice += some_sums();
  twice += some_sums();
  CHECK(twice.loss == 60);
  CHECK(twice.rows == 20);
  CHECK(twice.weight == 40);
  CHECK(twice.metrics.at(2).weight == 56);
  CHECK(twice["rmse"] == 3);
  const auto zeros = zeros_like(twice);
  CHECK(zeros.rows == 0);
  CHECK(zeros.metrics.size() == 3);
  CHECK(zeros.metrics[1].sum == 0);
  CHECK(zeros.metrics[1].kind == kMetrics[1]);
}
