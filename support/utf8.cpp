#include <lockstep/support/utf8.h>

#include <fmt/format.h>
#include <locale.h>
#include <wctype.h>

#include <cstddef>
#include <cstdint>

namespace lockstep {
namespace {

// The number of bytes of a character that begins with this one; 0: none does.
size_t length_from(uint8_t first) {
  if (first < 0x80) return 1;
  if (first < 0xc2) return 0;
  if (first < 0xe0) return 2;
  if (first < 0xf0) return 3;
  return first < 0xf5 ? 4 : 0;
}

// The second byte has narrower bounds behind some first bytes.
bool follows(uint8_t first, uint8_t second) {
  const uint8_t least = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t most = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return second >= least && second <= most;
}

// The character that begins at place `i` of well-formed UTF-8.
char32_t character_at(std::string_view utf8, size_t i, size_t length) {
  const auto first = static_cast<uint8_t>(utf8[i]);
  char32_t character = length == 1 ? first : first & (0x7f >> length);
  for (size_t k = 1; k < length; ++k) character = character << 6 | (static_cast<uint8_t>(utf8[i + k]) & 0x3f);
  return character;
}

// It goes through the capital letter, since some small letters have two forms. Where the system has no
// C.UTF-8, the letters are those of ASCII.
char32_t character_without_case(char32_t character) {
  static const locale_t kLocale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  if (kLocale == nullptr) return character >= 'A' && character <= 'Z' ? character + ('a' - 'A') : character;
  return static_cast<char32_t>(::towlower_l(::towupper_l(static_cast<wint_t>(character), kLocale), kLocale));
}

}  // namespace

std::u32string without_case(std::string_view utf8) {
  std::u32string characters;
  for (size_t i = 0; i < utf8.size();) {
    const auto length = length_from(static_cast<uint8_t>(utf8[i]));
    characters += character_without_case(character_at(utf8, i, length));
    i += length;
  }
  return characters;
}

bool is_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const size_t length = length_from(byte(i));
    if (length == 0 || length > text.size() - i) return false;
    if (length > 1 && !follows(byte(i), byte(i + 1))) return false;
    for (size_t k = 2; k < length; ++k) {
      if ((byte(i + k) & 0xc0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

std::string with_escaped_bytes(std::string_view text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte < 0x80) {
      shown += c;
    } else {
      shown += fmt::format("\\x{:02x}", byte);
    }
  }
  return shown;
}

}  // namespace lockstep
