#include <lockstep/tests/catch.h>

#include <string>
#include <utility>
#include <vector>

#include <lockstep/app/train/plan/data_flags.h>
#include <lockstep/app/train/plan/pixel_changes.h>
#include <lockstep/tests/support/refusal.h>

using namespace lockstep;
using namespace lockstep::testing;
using Catch::Matchers::ContainsSubstring;

TEST_CASE("shapes of synthetic images are read with and without classes, and written the same") {
  CHECK(parse_synthetic_shape("3x32x48") == SyntheticShape{3, 32, 48, 10});
  CHECK(parse_synthetic_shape("1x28x28:100") == SyntheticShape{1, 28, 28, 100});
  for (const auto* text : {"3x32x32", "3x32x32:100"}) {
    CHECK(to_string(parse_synthetic_shape(text)) == text);
  }
  for (const auto* text : {"", "32", "3x32", "3x32x32x1", "3x32x0", "3x-1x3", "ax2x2",
                           "3x32x32:", "3x32x32:0", "3x32x32:1:2", "3x32:32:10"}) {
    INFO(text);
    CHECK_THAT(refusal_of([&] { parse_synthetic_shape(text); }), ContainsSubstring("CHANNELSxHEIGHTxWIDTH"));
  }
}

TEST_CASE("means and deviations are read as auto, none and lists, and written with all their digits") {
  CHECK(parse_normalize("auto").automatic);
  CHECK_FALSE(parse_normalize("none").any());
  const auto given = parse_normalize("0.49,0.48,.1:0.25,0.24,0.3333333333333333").given;
  CHECK(given.mean == std::vector<double>{.49, .48, .1});
  CHECK(given.deviation == std::vector<double>{.25, .24, 1. / 3});
  CHECK(parse_normalize(to_string(NormalizeFlag{.given = given})).given == given);
  for (const auto* text : {"", "0.5", "0.5:", ":0.5", "0.5:0", "0.5:-1", "0.5,0.5:1", "0.5:1:1", "nan:1",
                           "1:inf", "automatic"}) {
    INFO(text);
    CHECK_THAT(refusal_of([&] { parse_normalize(text); }), ContainsSubstring("must be auto, none or"));
  }
}

TEST_CASE("means and deviations of bytes, and those that make infinite values, are refused") {
  for (const auto* text : {"128:64", "-0.1:1", "0.5,1.01,0:1,1,1", "1e300:1", "0.5:1e-40", "0.5:9e-7"}) {
    INFO(text);
    CHECK_THAT(refusal_of([&] { parse_normalize(text); }), ContainsSubstring("means of pixels / 255"));
  }
  for (const auto* text : {"0:1", "1:0.000001", "0:255"}) CHECK(parse_normalize(text).any());
}
