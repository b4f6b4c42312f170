// Numbers and counts in messages.
#include <lockstep/tests/catch.h>

#include <cstdint>
#include <limits>
#include <utility>

#include <lockstep/support/counted.h>

using lockstep::counted;
using lockstep::memory_text;
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

TEST_CASE("memory is in MB, with a decimal where there are few of them, and in KB below one") {
  for (const auto& [bytes, text] : {std::pair<int64_t, const char*>{0, "0 bytes"},
                                    {1, "1 byte"},
                                    {999, "999 bytes"},
                                    {1000, "1 KB"},
                                    {516'272, "516 KB"},
                                    {999'499, "999 KB"},
                                    {999'500, "1.0 MB"},
                                    {4'849'999, "4.8 MB"},
                                    {9'949'999, "9.9 MB"},
                                    {9'950'000, "10 MB"},
                                    {9'872'600'000, "9,873 MB"}}) {
    CHECK(memory_text(bytes) == text);
  }
}
