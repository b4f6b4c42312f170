// Suggestions for unknown words.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The smallest number of insertions, deletions, replacements and swaps of adjacent characters that turns one
// word into the other (Damerau-Levenshtein, no character edited twice).
int edit_distance(std::string_view a, std::string_view b);

// The names that begin with `word`. None for words of less than three characters.
std::vector<std::string> completions(std::string_view word, std::span<const std::string> names);

// The name that was probably meant: the only one that begins with `word`, else the nearest of those in which
// at most a third of the characters differ. Ignores case, leading dashes, and '_' for '-'.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> names);

// The word without leading dashes, in lower case, with '-' for '_'.
std::string normalized(std::string_view word);

// The text with ? for each control character, since a name may hold what a terminal obeys, and with <U+00A0>
// for a no-break space and other characters of UTF-8 that nobody sees.
std::string printable(std::string_view text);

// The printable() word in quotes, for messages. Of a word with more than 100 bytes it shows both ends, with
// "..." between them.
std::string in_quotes(std::string_view word);

// Cuts each word of more than 100 bytes, then a message of more than 2,000, down to its two ends: an error
// may repeat a value of any length.
std::string shortened(std::string_view message);

}  // namespace lockstep
