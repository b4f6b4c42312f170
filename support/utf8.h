// Names that others wrote, which need not be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns true for well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, at most U+10FFFF.
bool is_utf8(std::string_view text);

// Returns the characters of well-formed UTF-8 without their case, so that texts are equal which differ by
// case alone, with accents, too, and sigma's three forms. A letter that has two capitals, as the German sharp
// s, stays different from them.
std::u32string without_case(std::string_view utf8);

// Returns the text with \xNN for each byte beyond ASCII, so that a message can show a name that is no UTF-8.
std::string with_escaped_bytes(std::string_view text);

}  // namespace lockstep
