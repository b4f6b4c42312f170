#include <lockstep/tests/catch.h>
#include <cstdint>

#include <lockstep/app/cli/byte_size.h>
#include <lockstep/support/error.h>

using namespace lockstep;

TEST_CASE("numbers of bytes are read and written in powers of 1024") {
  CHECK(parse_bytes("8") == 8);
  CHECK(parse_bytes("512K") == 524288);
  CHECK(parse_bytes("16m") == 16777216);
  CHECK(parse_bytes("1G") == 1073741824);
  CHECK(parse_bytes("16MiB") == 16777216);
  CHECK(parse_bytes("512KiB") == 524288);
  CHECK(parse_bytes("8kb") == 8192);
  CHECK(parse_bytes("010") == 10);
  for (const auto* text :
       {"", "K", "8KX", "8iB", "0x10", "-1", "1.5M", "8 K", "99999999999999999999", "2000G", "8T"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_bytes(text), UsageError);
  }
  CHECK(bytes_text(8) == "8");
  CHECK(bytes_text(516272) == "516272");
  CHECK(bytes_text(524288) == "512K");
  CHECK(bytes_text(134217728) == "128M");
  CHECK(bytes_text(int64_t{3} << 30) == "3G");
}
