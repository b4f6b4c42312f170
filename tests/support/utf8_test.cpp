#include <lockstep/tests/catch.h>

#include <string>
#include <vector>

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

TEST_CASE("texts that differ by case alone are the same without it") {
  // The characters of each row are one in Unicode's simple case folding (CaseFolding.txt, C and S).
  const std::vector<std::vector<std::string>> rows = {{"Cat9", "cAT9"},
                                                      {"\u00c9t\u00e9", "\u00e9T\u00c9"},
                                                      {"\u00d6l", "\u00f6L"},
                                                      {"\u03a3", "\u03c3", "\u03c2"},
                                                      {"\u0416\u0451", "\u0436\u0401"},
                                                      {"\u1ebe", "\u1ebf"},
                                                      {"\U00010400", "\U00010428"}};
  for (size_t row = 0; row < rows.size(); ++row) {
    for (const auto& text : rows[row]) {
      INFO(text);
      CHECK(without_case(text) == without_case(rows[row].front()));
      if (row > 0) CHECK(without_case(text) != without_case(rows[row - 1].front()));
    }
  }
  CHECK(without_case("\u00d7") != without_case("\u00f7"));  // the signs of times and of division
  CHECK(without_case("\u732b\U0001f408") == U"\u732b\U0001f408");
  CHECK(without_case("").empty());
}

TEST_CASE("bytes beyond ASCII are shown by their numbers") {
  CHECK(with_escaped_bytes("caf\xe9/1.png") == "caf\\xe9/1.png");
}
