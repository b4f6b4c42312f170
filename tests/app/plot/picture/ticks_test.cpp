// The ticks of axes. All expected values are by hand.
#include <lockstep/tests/catch.h>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/plot/picture/ticks.h>

using namespace lockstep::plot;

namespace {

using Labels = std::vector<std::string>;

Labels labels(const std::vector<Tick>& ticks) {
  Labels result;
  for (const auto& tick : ticks) result.push_back(tick.label);
  return result;
}

std::vector<double> places(const std::vector<Tick>& ticks) {
  std::vector<double> result;
  for (const auto& tick : ticks) result.push_back(tick.at);
  return result;
}

void check_places(const std::vector<Tick>& ticks, const std::vector<double>& expected) {
  REQUIRE(ticks.size() == expected.size());
  for (size_t i = 0; i < expected.size(); ++i) CHECK(ticks[i].at == Approx(expected[i]).margin(1e-12));
}

}  // namespace

TEST_CASE("the ticks of a linear axis go in steps of 1, 2 or 5") {
  const auto linear = [](double low, double high, double least_step = 0) {
    return linear_axis("", std::vector{low, high}, least_step).ticks;
  };
  CHECK(labels(linear(0, 10)) == Labels{"0", "2", "4", "6", "8", "10"});
  CHECK(labels(linear(0, 1)) == Labels{"0.0", "0.2", "0.4", "0.6", "0.8", "1.0"});
  CHECK(labels(linear(-1, 1)) == Labels{"-1.0", "-0.5", "0.0", "0.5", "1.0"});
  CHECK(labels(linear(.7, .86)) == Labels{"0.70", "0.75", "0.80", "0.85", "0.90"});
  CHECK(labels(linear(3, 47)) == Labels{"0", "10", "20", "30", "40", "50"});
  CHECK(labels(linear(0, 6e-4)) ==
        Labels{"0.0000", "0.0001", "0.0002", "0.0003", "0.0004", "0.0005", "0.0006"});
  check_places(linear(0, 2500), {0, 500, 1000, 1500, 2000, 2500});
  // No step is below the least one.
  CHECK(labels(linear(0, 2)) == Labels{"0.0", "0.5", "1.0", "1.5", "2.0"});
  CHECK(labels(linear(0, 2, 1)) == Labels{"0", "1", "2"});
}

TEST_CASE("a linear axis has at most eight ticks") {
  for (double high = .013; high < 5e6; high *= 1.37) {
    INFO(high);
    const auto ticks = linear_axis("", std::vector{-.3 * high, high}).ticks;
    CHECK((ticks.size() >= 2 && ticks.size() <= 8));
    CHECK((ticks.front().at <= -.3 * high * (1 - 1e-9) && ticks.back().at >= high * (1 - 1e-9)));
  }
}

TEST_CASE("ranges that have no ticks") {
  const double infinite = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(linear_axis("", std::vector{0, infinite}).ticks.empty());
  CHECK(linear_axis("", std::vector{-1e308, 1e308}).ticks.empty());
  CHECK(linear_axis("", std::vector{nan, nan}).ticks.empty());
  CHECK(decade_ticks(0, 1, 5).empty());
  CHECK(byte_ticks(-1, 8, 5).empty());
  CHECK(doubling_ticks(0, 8).empty());
}

TEST_CASE("decades, with 2 and 5 if there is room") {
  CHECK(labels(decade_ticks(.01, .5, 8)) == Labels{"0.01", "0.02", "0.05", "0.1", "0.2", "0.5"});
  CHECK(labels(decade_ticks(.0001, 20, 8)) == Labels{"0.0001", "0.001", "0.01", "0.1", "1", "10"});
  CHECK(labels(decade_ticks(1e-5, 1e7, 5)) == Labels{"1e-5", "0.01", "10", "10000", "1e7"});
  check_places(decade_ticks(3, 70, 8), {5, 10, 20, 50});
}

TEST_CASE("bytes go in equal steps of powers of two, from the first size on") {
  CHECK(labels(byte_ticks(8, 128 << 20, 5)) == Labels{"8", "512", "32K", "2M", "128M"});
  CHECK(labels(byte_ticks(8, 8 << 20, 8)) == Labels{"8", "128", "2K", "32K", "512K", "8M"});
  CHECK(places(byte_ticks(1024, 4096, 8)) == std::vector<double>{1024, 2048, 4096});
  CHECK(labels(byte_ticks(1 << 30, 4. * (1 << 30), 8)) == Labels{"1G", "2G", "4G"});
  CHECK(labels(byte_ticks(5, 20, 8)) == Labels{"8", "16"});
}

TEST_CASE("doublings, with values between them on a short axis") {
  CHECK(labels(doubling_ticks(1, 16)) == Labels{"1", "2", "4", "8", "16"});
  CHECK(labels(doubling_ticks(1, 4)) == Labels{"1", "1.5", "2", "3", "4"});
  CHECK(labels(doubling_ticks(.5, 1)) == Labels{"0.5", "0.75", "1"});
  CHECK(labels(doubling_ticks(.8, 2)) == Labels{"1", "1.5", "2"});
}

TEST_CASE("an axis reaches from tick to tick around its values") {
  const auto linear = linear_axis("accuracy", std::vector{.73, .862});
  CHECK(linear.low == Approx(.7));
  CHECK(linear.high == Approx(.9));
  CHECK(labels(linear.ticks) == Labels{"0.70", "0.75", "0.80", "0.85", "0.90"});
  CHECK(linear.label == "accuracy");
  CHECK(linear.scale == Scale::kLinear);

  const auto decade = decade_axis("lr", std::vector{.0125, .4});
  CHECK(decade.low == Approx(.01));
  CHECK(decade.high == Approx(.5));
  CHECK(decade.scale == Scale::kLog);
  CHECK(decade_axis("", std::vector{.3}).high == Approx(.5));  // 2, 5
  CHECK(decade_axis("", std::vector{.7}).high == Approx(1));   // 5, 10
  CHECK(decade_axis("", std::vector{1.2}).high == Approx(2));  // 1, 2
  CHECK(decade_axis("", std::vector{.001}).high == Approx(.002));

  const auto bytes = byte_axis("size", std::vector{8., 2048.});
  CHECK(bytes.low == 8);
  CHECK(bytes.high == 2048);

  const auto doubling = doubling_axis("replicas", std::vector{1., 16.});
  CHECK(doubling.low < 1);
  CHECK(doubling.high > 16);
  CHECK(labels(doubling.ticks) == Labels{"1", "2", "4", "8", "16"});
}

TEST_CASE("one value or none gives an axis too") {
  const std::vector<double> none, one{5}, zero{0};
  for (const auto& values : {none, one, zero}) {
    const auto axis = linear_axis("", values);
    CHECK(axis.low < axis.high);
    CHECK(axis.ticks.size() >= 2);
    if (!values.empty()) CHECK((axis.low <= values[0] && values[0] <= axis.high));
  }
  for (const auto& values : {none, one}) {
    for (const auto& axis : {decade_axis("", values), byte_axis("", values), doubling_axis("", values)}) {
      CHECK(axis.low < axis.high);
      if (!values.empty()) CHECK((axis.low <= values[0] && values[0] <= axis.high));
    }
  }
}
