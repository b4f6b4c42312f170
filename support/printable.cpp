#include <lockstep/support/printable.h>

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace lockstep {
namespace {

// The most bytes that a message shows of a word, and of all its words.
constexpr size_t kMostOfWord = 100;
constexpr size_t kMostOfMessage = 2000;

// In UTF-8.
bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

// The first and the last half of `most` bytes, with "..." between them. Cuts no character.
std::string both_ends(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  size_t head = most / 2, tail = text.size() - most / 2;
  while (head > 0 && !begins_character(text[head])) --head;
  while (tail < text.size() && !begins_character(text[tail])) ++tail;
  return std::string(text.substr(0, head)).append("...").append(text.substr(tail));
}

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
};

// The first character of a text in UTF-8, or its first byte if it begins with none.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const Character alone{.code = byte(0)};
  size_t bytes = 1;
  while (bytes < 4 && (byte(0) << bytes & 0x80) != 0) ++bytes;
  if (byte(0) < 0xc0 || text.size() < bytes) return alone;
  Character character{.code = byte(0) & (0x7fu >> bytes), .bytes = bytes};
  for (size_t i = 1; i < bytes; ++i) {
    if (begins_character(text[i])) return alone;
    character.code = character.code << 6 | (byte(i) & 0x3f);
  }
  return character;
}

// Control characters beyond ASCII, spaces that look like the usual one, and characters without a width.
bool is_invisible(const Character& character) {
  struct Range {
    uint32_t first, last;
  };
  static constexpr Range kInvisible[] = {
      {0x80, 0xa0},     {0xad, 0xad},      {0x34f, 0x34f},   {0x61c, 0x61c},   {0x115f, 0x1160},
      {0x1680, 0x1680}, {0x17b4, 0x17b5},  {0x180b, 0x180e}, {0x2000, 0x200f}, {0x2028, 0x202f},
      {0x205f, 0x206f}, {0x3000, 0x3000},  {0x3164, 0x3164}, {0xfeff, 0xfeff}, {0xffa0, 0xffa0},
      {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
  return character.bytes > 1 &&
         std::any_of(std::begin(kInvisible), std::end(kInvisible), [&](const Range& range) {
           return range.first <= character.code && character.code <= range.last;
         });
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const auto character = first_character(text);
    if (is_invisible(character)) {
      result += fmt::format("<U+{:04X}>", character.code);
    } else if (character.code < 0x20 || character.code == 0x7f) {
      result += '?';
    } else {
      result += text.substr(0, character.bytes);
    }
    text.remove_prefix(character.bytes);
  }
  return result;
}

std::string in_quotes(std::string_view word) { return "'" + printable(both_ends(word, kMostOfWord)) + "'"; }

std::string shortened(std::string_view message) {
  std::string text;
  for (size_t begin = 0; begin < message.size();) {
    const auto end = std::min(message.find_first_of(" \n", begin), message.size());
    text += both_ends(message.substr(begin, end - begin), kMostOfWord);
    if (end < message.size()) text += message[end];
    begin = end + 1;
  }
  return both_ends(text, kMostOfMessage);
}

}  // namespace lockstep
