#include <lockstep/support/utf8.h>

#include <fmt/format.h>

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

}  // namespace

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
