// Texts of users in messages.
#include <lockstep/tests/catch.h>
#include <string>

#include <lockstep/support/printable.h>

using namespace lockstep;

TEST_CASE("a quoted word cannot disturb the terminal") {
  CHECK(in_quotes("plain") == "'plain'");
  CHECK(in_quotes("\x1b[31mred\n") == "'?[31mred?'");
  CHECK(in_quotes("gr\xc3\xbc\xc3\x9f") == "'gr\xc3\xbc\xc3\x9f'");
}

TEST_CASE("a character that nobody sees is shown by its number") {
  CHECK(in_quotes("batch\u00a0size") == "'batch<U+00A0>size'");
  CHECK(in_quotes("\ufeff[train]") == "'<U+FEFF>[train]'");
  CHECK(printable("a\u200b\u2028\u3000b\u009b") == "a<U+200B><U+2028><U+3000>b<U+009B>");
  CHECK(printable("\U000e0001") == "<U+E0001>");
  const std::string seen = "\u00a1gr\u00fc\u00df\u20ac\U0001f600\u3001";
  CHECK(printable(seen) == seen);
  // No UTF-8: a byte alone, one that goes on, one that begins and ends the text, and five bytes.
  for (const std::string bytes : {"\xa0x", "\xc2", "\xe2\x80", "\xc2 ", "\xf8\x88\x80\x80\x80"}) {
    CHECK(printable(bytes) == bytes);
  }
}

TEST_CASE("a message shows both ends of a long value") {
  const std::string a(50, 'a'), b(50, 'b');
  CHECK(in_quotes(a + b) == "'" + a + b + "'");
  CHECK(in_quotes(a + "c" + b) == "'" + a + "..." + b + "'");
  CHECK(shortened("got " + a + std::string(100'000, ' ') + "\n" + b).size() == 2003);
  CHECK(shortened("got '" + std::string(100'000, 'a') + "' for --lr") ==
        "got '" + a.substr(1) + "..." + a.substr(1) + "' for --lr");
  CHECK(shortened("one, " + a + b + "\n" + b) == "one, " + a + b + "\n" + b);
  CHECK(shortened("").empty());
  // 35 characters of three bytes: 50 bytes are sixteen of them and a part.
  std::string euros, sixteen;
  for (int i = 0; i < 35; ++i) euros += "\u20ac";
  for (int i = 0; i < 16; ++i) sixteen += "\u20ac";
  CHECK(shortened(euros) == sixteen + "..." + sixteen);
}
