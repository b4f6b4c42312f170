// Texts of users as messages show them: short, and nothing in them that a terminal obeys.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The text with ? for each control character, since a name may hold what a terminal obeys, and with <U+00A0>
// for a no-break space and other characters of UTF-8 that nobody sees.
std::string printable(std::string_view text);

// The printable() word in quotes, for messages. A word with more than 100 bytes is shown by both ends, with
// "..." between them.
std::string in_quotes(std::string_view word);

// Cuts each word of more than 100 bytes, then a message of more than 2,000, down to its two ends: an error
// may repeat a value of any length.
std::string shortened(std::string_view message);

}  // namespace lockstep
