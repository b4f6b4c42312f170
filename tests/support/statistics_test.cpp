// Expected values by hand.
#include <lockstep/tests/catch.h>
#include <numeric>

#include <lockstep/support/error.h>
#include <lockstep/support/statistics.h>

using namespace lockstep;

TEST_CASE("quantiles interpolate between neighbouring values") {
  CHECK(median({7}) == 7);
  CHECK(median({3, 1, 2}) == 2);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(quantile({10, 20, 30, 40, 50}, 0) == 10);
  CHECK(quantile({50, 10, 40, 20, 30}, .25) == 20);
  CHECK(quantile({10, 20, 30, 40}, .25) == Approx(17.5));  // three quarters of the way from 10 to 20
  CHECK(quantile({10, 20, 30, 40}, 1) == 40);
  CHECK_THROWS_AS(median({}), UsageError);
}

TEST_CASE("quartiles_of gives the median and both quartiles") {
  const auto quartiles = quartiles_of({100, 1, 3, 2, 4});
  CHECK(quartiles.median == 3);
  CHECK(quartiles.low == 2);
  CHECK(quartiles.high == 4);
  CHECK(quartiles.repeats == 5);
  CHECK(quartiles.relative_iqr() == Approx(2.0 / 3));
  CHECK(quartiles_of({0, 0, 0}).relative_iqr() == 0);
}

TEST_CASE("ratios are paired within a repetition and need three repetitions") {
  // In the second repetition everything took ten times as long. The paired ratio does not see it. The ratio
  // of medians would be 4/2.
  const std::vector<double> a = {2, 30, 4}, b = {2, 10, 1};
  CHECK(paired_ratio(a, b) == 3);
  CHECK_FALSE(paired_ratio(std::vector<double>{1, 2}, std::vector<double>{1, 2}).has_value());
  CHECK_THROWS_AS(paired_ratio(a, std::vector<double>{1, 2}), UsageError);
}

// The second and the ninth of nine values in order bracket the median: 4.5 -+ 2.94.
TEST_CASE("a median is stable if its bracket is narrow") {
  const std::vector<double> values = {.5, .95, 1, 1, 1, 1, 1, 1, 1.08};
  CHECK(median_is_stable(values, .081));
  CHECK_FALSE(median_is_stable(values, .079));
  CHECK(median_is_stable(std::vector<double>(9, 2.0), 0));
  CHECK_FALSE(median_is_stable(std::vector<double>(8, 2.0), .5));  // too few to tell
  std::vector<double> low = values;
  low[1] = .9;
  CHECK_FALSE(median_is_stable(low, .09));
  std::vector<double> many(400);
  std::iota(many.begin(), many.end(), 1000.0);  // median 1199.5, bracket at 180 and 220
  CHECK(median_is_stable(many, .018));
  CHECK_FALSE(median_is_stable(many, .015));
}
