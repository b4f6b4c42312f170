// Numbers in texts.
#include <lockstep/tests/catch.h>

#include <cstdint>

#include <lockstep/support/parse_number.h>

using namespace lockstep;

TEST_CASE("a number is the whole text and fits its type") {
  CHECK(parse_number<int>("12") == 12);
  CHECK(parse_number<int>("-12") == -12);
  CHECK(parse_number<int64_t>("9223372036854775807") == INT64_MAX);
  CHECK(parse_number<double>("1e-3") == .001);
  CHECK(parse_number<double>(".5") == .5);
  for (const auto* text : {"", "-", "+1", " 1", "1 ", "1x", "x", "0x1", "1.5", "2147483648", "-2147483649"}) {
    INFO(text);
    CHECK_FALSE(parse_number<int>(text));
  }
  CHECK_FALSE(parse_number<double>("1e999"));
}

TEST_CASE("a count has no sign") {
  CHECK(parse_count<int>("0") == 0);
  CHECK(parse_count<int>("007") == 7);
  for (const auto* text : {"", "-1", "-0", "+1", "1.5", "2147483648"}) {
    INFO(text);
    CHECK_FALSE(parse_count<int>(text));
  }
}
