#include <lockstep/tests/catch.h>

#include <string>

#include <lockstep/support/utf8.h>

using namespace lockstep;

TEST_CASE("UTF-8 is told from other bytes as RFC 3629 has it") {
  for (const std::string good : {"", "cat", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x90\x88", "\xed\x9f\xbf",
                                 "\xef\xbf\xbf", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    INFO(with_escaped_bytes(good));
    CHECK(is_utf8(good));
  }
  for (const std::string bad :
       {"\x80", "caf\xe9", "\xc0\xaf", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xc3", "\xe2\x82", "\xf0\x9f\x90", "\xc3z"}) {
    INFO(with_escaped_bytes(bad));
    CHECK_FALSE(is_utf8(bad));
  }
}

TEST_CASE("bytes beyond ASCII are shown by their numbers") {
  CHECK(with_escaped_bytes("caf\xe9/1.png") == "caf\\xe9/1.png");
}
