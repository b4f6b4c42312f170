// Numbers and counts in messages.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <limits>

#include <lockstep/support/counted.h>

using lockstep::counted;
using lockstep::with_commas;

TEST_CASE("numbers have a comma before each group of three digits") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1000) == "1,000");
  CHECK(with_commas(60'000) == "60,000");
  CHECK(with_commas(123'456) == "123,456");
  CHECK(with_commas(10'000'000) == "10,000,000");
  CHECK(with_commas(-999) == "-999");
  CHECK(with_commas(-1000) == "-1,000");
  CHECK(with_commas(std::numeric_limits<int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("one thing is singular, any other number of things is plural") {
  CHECK(counted(0, "step") == "0 steps");
  CHECK(counted(1, "step") == "1 step");
  CHECK(counted(2, "step") == "2 steps");
  CHECK(counted(10'000'000, "image") == "10,000,000 images");
}
