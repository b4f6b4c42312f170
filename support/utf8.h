// Names that others wrote, which need not be UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns true for well-formed UTF-8 (RFC 3629): no overlong forms, no surrogates, at most U+10FFFF.
bool is_utf8(std::string_view text);

// Returns the text with \xNN for each byte beyond ASCII, so that a message can show a name that is no UTF-8.
std::string with_escaped_bytes(std::string_view text);

}  // namespace lockstep
